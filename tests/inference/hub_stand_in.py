"""A hub in a folder: the calls of the Hugging Face hub's HTTP API that an upload and a download make.

Files come as the hub takes them: small ones inside the commit, weights through the LFS protocol. Each commit is a
folder of its own.
"""

import base64
import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Hub:
    """Repositories below a folder: <folder>/<owner>/<name>/<commit>/..., what was asked, and whom it lets in."""

    def __init__(self, folder, token="secret"):
        self.folder, self.token, self.asked, self.private = Path(folder), token, [], {}
        self.blobs = Path(folder) / ".blobs"
        self.blobs.mkdir()
        self.head = {}

    def files(self, repository):
        place = self.folder / repository / self.head[repository]
        return {path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*") if path.is_file()}

    def commit(self, repository, lines):
        header, *operations = lines
        files = self.files(repository) if repository in self.head else {}
        for operation in operations:
            value = operation["value"]
            if operation["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            else:
                assert operation["key"] == "lfsFile"
                files[value["path"]] = (self.blobs / value["oid"]).read_bytes()
        name = hashlib.sha1(repr((header, sorted(files.items()))).encode()).hexdigest()
        for path, content in files.items():
            place = self.folder / repository / name / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        self.head[repository] = name
        return name


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def hub(self):
        return self.server.hub

    def log_message(self, *_):
        pass

    def answer(self, status, value=None, body=b"", **headers):
        body = json.dumps(value).encode() if value is not None else body
        self.send_response(status)
        for name, content in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), content)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_POST(self):
        path, content = unquote(urlsplit(self.path).path), self.body()
        self.hub.asked.append(path)
        here = f"http://{self.headers['Host']}"
        if self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            return self.answer(401, {"error": "Invalid username or password."})
        if path == "/api/validate-yaml":
            return self.answer(200, {"errors": [], "warnings": []})
        if path == "/api/repos/create":
            asked = json.loads(content)
            name = f"{asked.get('organization') or 'me'}/{asked['name']}"
            self.hub.private.setdefault(name, asked.get("visibility") == "private")
            return self.answer(200, {"url": f"{here}/{name}", "name": name, "id": name})
        if path.endswith("/info/lfs/objects/batch"):
            objects = json.loads(content)["objects"]
            links = [{**each, "actions": {"upload": {"href": f"{here}/lfs/{each['oid']}"}}} for each in objects]
            return self.answer(200, {"transfer": "basic", "objects": links})
        repository = "/".join(path.split("/")[3:5])
        if "/preupload/" in path:
            files = json.loads(content)["files"]
            modes = [
                {
                    "path": f["path"],
                    "shouldIgnore": False,
                    "uploadMode": "lfs" if f["path"].endswith("safetensors") else "regular",
                }
                for f in files
            ]
            return self.answer(200, {"files": modes})
        assert "/commit/" in path, path
        oid = self.hub.commit(repository, [json.loads(line) for line in content.splitlines()])
        self.answer(200, {"success": True, "commitOid": oid, "commitUrl": f"{here}/{repository}/commit/{oid}"})

    def do_PUT(self):
        content, oid = self.body(), self.path.split("/")[-1]
        assert hashlib.sha256(content).hexdigest() == oid
        (self.hub.blobs / oid).write_bytes(content)
        self.answer(200)

    def do_GET(self):
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        self.hub.asked.append(self.path)
        if parts[:2] == ["api", "whoami-v2"]:
            return self.answer(200, {"name": "me", "type": "user", "orgs": []})
        if parts[:2] == ["api", "models"]:
            repository = "/".join(parts[2:4])
            if repository not in self.hub.head:
                return self.answer(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
            names = sorted(self.hub.files(repository))
            if "tree" in parts:
                return self.answer(200, [{"type": "file", "path": n, "size": 1, "oid": "0"} for n in names])
            siblings = [{"rfilename": name} for name in names]
            found = {"id": repository, "modelId": repository, "sha": self.hub.head[repository], "siblings": siblings}
            return self.answer(200, {**found, "private": False, "tags": [], "downloads": 0, "likes": 0})
        repository, name = "/".join(parts[:2]), "/".join(parts[4:])
        if parts[2:3] != ["resolve"]:
            return self.answer(404, {"error": "Not found"})
        files = self.hub.files(repository) if repository in self.hub.head else {}
        commit = self.hub.head.get(repository, "")
        if name not in files:
            return self.answer(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
        etag = f'"{hashlib.sha256(files[name]).hexdigest()}"'
        self.answer(200, body=files[name], ETag=etag, X_Repo_Commit=commit, Accept_Ranges="bytes")

    do_HEAD = do_GET


@contextmanager
def hub_in(folder):
    """A hub on a free port of this machine, with its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.hub = Hub(folder)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.hub, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
