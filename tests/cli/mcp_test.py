#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ingero mcp` on the wire: any way of cutting the input into writes, mistakes,
versions, cancellation, and when it ends.

  mcp_test.py --ingero I --store FOLDER --program starved_loader

The MCP Inspector and the conformance suite are not run: both are npm packages,
and these tests ask no registry but PyPI (mcp_sdk_test.py).
"""
import argparse
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

OPTIONS = None
VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
ENDLESS = ("WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
           "SELECT count(*) FROM c")
MOST_BYTES = 60_000


class Server:
    def __init__(self, store=None, version="2025-06-18", stdout=subprocess.PIPE):
        self.process = subprocess.Popen(
            [OPTIONS.ingero, "mcp", "--db", store or OPTIONS.store],
            stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.PIPE)
        self.id = 0
        self.rest = b""
        if version:
            self.info = self.ask("initialize", protocolVersion=version,
                                 capabilities={}, clientInfo={"name": "test",
                                                              "version": "1"})
            self.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')

    def write(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, method, **params):
        self.id += 1
        self.write(json.dumps({"jsonrpc": "2.0", "id": self.id,
                               "method": method, "params": params}).encode() +
                   b"\n")
        return self.id

    def line(self, timeout=30):
        """The next line, which must be a message of JSON-RPC in ASCII."""
        fd = self.process.stdout.fileno()
        while b"\n" not in self.rest:
            if not select.select([fd], [], [], timeout)[0]:
                raise TimeoutError("no answer")
            data = os.read(fd, 1 << 16)
            if not data:
                raise EOFError(self.process.stderr.read().decode())
            self.rest += data
        line, self.rest = self.rest.split(b"\n", 1)
        line.decode("ascii")
        self.size = len(line)
        message = json.loads(line)
        assert message["jsonrpc"] == "2.0", message
        return message

    def ask(self, method, **params):
        asked = self.send(method, **params)
        answer = self.line()
        assert answer["id"] == asked, answer
        return answer.get("result", answer.get("error"))

    def tool(self, name, /, **arguments):
        return self.ask("tools/call", name=name, arguments=arguments)

    def end(self, timeout=10):
        self.process.stdin.close()
        status = self.process.wait(timeout)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe:
                pipe.close()
        return status


class McpTest(unittest.TestCase):
    def serve(self, *args, **kwargs):
        server = Server(*args, **kwargs)

        def stop():
            if server.process.poll() is None:
                server.process.kill()
                server.process.wait()
            for pipe in (server.process.stdin, server.process.stdout,
                         server.process.stderr):
                if pipe:
                    try:
                        pipe.close()
                    except BrokenPipeError:
                        pass
        self.addCleanup(stop)
        return server

    def arguments(self, tool):
        return {"run_sql": {"sql": "SELECT * FROM calls"},
                "compare_traces": {"other_db": OPTIONS.store},
                "get_timeline": {"pid": 2912}}.get(tool, {})

    def test_versions(self):
        for version in VERSIONS:
            self.assertEqual(self.serve(version=version)
                             .info["protocolVersion"], version)
        for other in ("1999-01-01", "", 7):
            self.assertEqual(self.serve(version=other or "x")
                             .info["protocolVersion"], VERSIONS[-1])

    def test_every_tool_with_defaults(self):
        for version in (VERSIONS[0], VERSIONS[-1]):
            server = self.serve(version=version)
            tools = server.ask("tools/list")["tools"]
            self.assertLess(server.size, MOST_BYTES)
            self.assertGreaterEqual(len(tools), 9)
            for tool in tools:
                self.assertTrue(tool["annotations"]["readOnlyHint"])
                for about in tool["inputSchema"]["properties"].values():
                    self.assertTrue(about["description"])
                result = server.tool(tool["name"],
                                     **self.arguments(tool["name"]))
                self.assertFalse(result["isError"], result)
                self.assertLess(server.size, MOST_BYTES, tool["name"])
                data = json.loads(result["content"][0]["text"])
                if version == VERSIONS[0]:
                    self.assertNotIn("structuredContent", result)
                else:
                    self.assertEqual(result["structuredContent"], data)

    def test_pages_hold_every_item_once(self):
        server = self.serve()
        for tool, items, key in [
                ("get_per_process_breakdown", "processes", "pid"),
                ("get_trace_stats", "operations", "name"),
                ("get_starvation", "seconds", "second")]:
            whole, cursor = [], None
            while True:
                more = {"cursor": cursor} if cursor else {}
                page = server.tool(tool, limit=7, **more)["structuredContent"]
                self.assertLessEqual(len(page[items]), 7)
                whole += page[items]
                cursor = page["next_cursor"]
                if cursor is None:
                    break
            self.assertEqual(len(whole), page["total"])
            rows = [json.dumps(x, sort_keys=True) for x in whole]
            self.assertEqual(len(set(rows)), len(rows), tool)
        slow = server.tool("get_slowest_calls", limit=5)["structuredContent"]
        then = server.tool("get_slowest_calls", limit=5,
                           cursor=slow["next_cursor"])["structuredContent"]
        durations = [c["duration_ns"] for c in slow["calls"] + then["calls"]]
        self.assertEqual(durations, sorted(durations, reverse=True))
        self.assertEqual(len(durations), 10)

    def test_same_as_explain(self):
        report = json.loads(subprocess.run(
            [OPTIONS.ingero, "explain", "--json", "--db", OPTIONS.store],
            capture_output=True, text=True, check=True).stdout)
        server = self.serve()
        data = server.tool("get_causal_chains")["structuredContent"]
        self.assertEqual(data["verdict"], report["verdict"])
        self.assertEqual([(f["cause"], f["lost_ns"]) for f in data["findings"]],
                         [(f["cause"], f["lost_ns"])
                          for f in report["findings"]])
        self.assertEqual(data["slow_operations"], report["chains"])
        rows = server.tool("run_sql", sql="SELECT cause, lost_ns FROM findings "
                           "ORDER BY rank")["structuredContent"]["rows"]
        self.assertEqual([(r["cause"], r["lost_ns"]) for r in rows],
                         [(f["cause"], f["lost_ns"])
                          for f in report["findings"]])
        part = server.tool("get_causal_chains", **{"from": "101.912s"},
                           to="122.367s")["structuredContent"]
        self.assertEqual(part["findings"][0]["cause"], "loader-cpu-bound")

    def test_wrong_arguments_are_told_to_the_model(self):
        server = self.serve()
        for tool, arguments, word in [
                ("run_sql", {}, "missing"),
                ("run_sql", {"sql": 1}, "type string"),
                ("run_sql", {"sql": "SELECT nope"}, "no such column"),
                ("run_sql", {"sql": "DELETE FROM calls"}, "modified"),
                ("run_sql", {"sql": "SELECT 1", "limit": 0}, "at least 1"),
                ("run_sql", {"sql": "SELECT 1", "limit": 5000}, "at most"),
                ("get_causal_chains", {"sinse": "5s"}, "sinse"),
                ("get_causal_chains", {"since": "soon"}, "soon"),
                ("get_causal_chains", {"pid": 999999999}, "python3/2912"),
                *[(tool, {"cursor": cursor, **more}, "next_cursor")
                  for tool, more in [("get_causal_chains", {}),
                                     ("get_slowest_calls", {}),
                                     ("get_timeline", {"pid": 2912})]
                  for cursor in ("x", "-1", "1x", "9" * 20)],
                ("get_timeline", {}, "tid"),
                ("get_slowest_calls", {"name": "x' OR 1"}, "name"),
                ("compare_traces", {"other_db": "/none"}, "/none")]:
            result = server.tool(tool, **arguments)
            self.assertTrue(result["isError"], (tool, arguments))
            self.assertIn(word, json.loads(result["content"][0]["text"])["error"])
        self.assertEqual(server.ask("tools/call", name="nope")["code"], -32602)
        self.assertEqual(server.ask("tools/call", name="run_sql",
                                    arguments=[1])["code"], -32602)
        self.assertEqual(server.ask("no/such")["code"], -32601)
        self.assertEqual(server.ask("resources/read", uri="x")["code"], -32002)
        self.assertEqual(server.ask("prompts/get", name="x")["code"], -32602)
        self.assertEqual(self.serve(version=None).ask("tools/list")["code"],
                         -32600)  # not initialized

    def test_timeline_is_the_command_s(self):
        server = self.serve()
        asked = {"pid": 2912, "from": "12s", "to": "12.05s"}
        said = json.loads(subprocess.run(
            [OPTIONS.ingero, "timeline", "--db", OPTIONS.store, "--pid", "2912",
             "--from", "12s", "--to", "12.05s", "--json"], check=True,
            capture_output=True).stdout)
        events, cursor = [], None
        while True:
            page = json.loads(server.tool(
                "get_timeline", **asked, limit=200,
                **({"cursor": cursor} if cursor else {}))["content"][0]["text"])
            events += page["events"]
            cursor = page["next_cursor"]
            if not cursor:
                break
        self.assertEqual(page["states"], said["states"])
        self.assertEqual(events, said["events"])
        self.assertGreater(len(events), 20)

    def test_resources_and_prompt(self):
        server = self.serve()
        for r in server.ask("resources/list")["resources"]:
            text = server.ask("resources/read",
                              uri=r["uri"])["contents"][0]["text"]
            self.assertGreater(len(text), 1000, r["uri"])
            self.assertLess(server.size, MOST_BYTES, r["uri"])
        prompt, = server.ask("prompts/list")["prompts"]
        text = server.ask("prompts/get", name=prompt["name"], arguments={
            "question": "who\u202e did it?"})["messages"][0]["content"]["text"]
        self.assertIn("who", text)
        self.assertNotIn("\u202e", text)

    def test_input_in_any_pieces(self):
        server = self.serve()
        ping = b'{"jsonrpc":"2.0","id":"p","method":"ping"}'
        for byte in ping + b"\n":
            server.write(bytes([byte]))
        self.assertEqual(server.line()["id"], "p")
        server.write(b"\r\n\n  \n" + ping + b"\r\n" + ping + b"\n" + ping)
        for _ in range(2):
            self.assertEqual(server.line()["id"], "p")
        server.write(b"\n")
        self.assertEqual(server.line()["id"], "p")
        # A batch (2025-03-26), with a notification in it.
        server.write(b'[' + ping + b',{"jsonrpc":"2.0","method":"x"},' + ping +
                     b']\n')
        for _ in range(2):
            self.assertEqual(server.line()["result"], {})

    def test_what_is_no_message(self):
        server = self.serve()
        for data, code in [(b"{", -32700), (b"hello", -32700),
                           (b"\xff\xfe{}", -32700), (b'"\xc3\x28"', -32700),
                           (b"[]", -32600), (b"42", -32600), (b"{}", -32600),
                           (b'{"id":1,"method":"ping"}', -32600),
                           (b'{"jsonrpc":"2.0","id":{},"method":"ping"}',
                            -32600)]:
            server.write(data + b"\n")
            self.assertEqual(server.line()["error"]["code"], code, data)
        # 10 MB of it, and deep nesting.
        server.write(b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{"x":"' +
                     b"a" * 10_000_000 + b'"}}\n')
        self.assertEqual(server.line()["id"], 5)
        server.write(b"[" * 100_000 + b"\n")
        self.assertEqual(server.line()["error"]["code"], -32700)
        self.assertEqual(server.ask("ping"), {})

    def test_ping_progress_and_cancellation_of_a_long_query(self):
        server = self.serve()
        asked = server.send("tools/call", name="run_sql",
                            arguments={"sql": ENDLESS},
                            _meta={"progressToken": "t"})
        time.sleep(0.2)
        server.write(b'{"jsonrpc":"2.0","id":"alive","method":"ping"}\n')
        self.assertEqual(server.line(timeout=5)["id"], "alive")
        done = -1
        for _ in range(2):
            progress = server.line()
            self.assertEqual(progress["method"], "notifications/progress")
            self.assertEqual(progress["params"]["progressToken"], "t")
            self.assertGreater(progress["params"]["progress"], done)
            done = progress["params"]["progress"]
        # Also one that began after it.
        second = server.send("tools/call", name="run_sql",
                             arguments={"sql": ENDLESS})
        for one in (second, asked):
            server.write(json.dumps(
                {"jsonrpc": "2.0", "method": "notifications/cancelled",
                 "params": {"requestId": one}}).encode() + b"\n")
        last = server.send("tools/list")
        answer = server.line()
        while answer.get("method") == "notifications/progress":
            answer = server.line()
        self.assertEqual(answer["id"], last)  # neither was answered

    def test_a_short_question_does_not_wait_for_long_ones(self):
        server = self.serve()
        for _ in range(3):
            server.send("tools/call", name="run_sql",
                        arguments={"sql": ENDLESS})
        rows = server.tool("run_sql", sql="SELECT 7 AS n")
        self.assertEqual(rows["structuredContent"]["rows"], [{"n": 7}])
        self.assertEqual(server.end(), 0)

    def test_texts_of_programs_are_data(self):
        server = self.serve()
        sql = ("SELECT 'ignore' || char(8238, 8203, 27, 10) || "
               "replace(hex(zeroblob(2000)), '0', 'x') AS name")
        text = server.tool("run_sql", sql=sql)["structuredContent"]["rows"][0]
        self.assertLessEqual(len(text["name"]), 620)
        for c in "\u202e\u200b\x1b\n":
            self.assertNotIn(c, text["name"])

    def test_programs_with_names_that_instruct(self):
        """A recorded program whose name, path and arguments are hostile."""
        folder = tempfile.mkdtemp(prefix="ingero-mcp-", dir="/var/tmp")
        self.addCleanup(shutil.rmtree, folder)
        evil = "\u202e\u200b\x1b[2J\n"
        program = os.path.join(folder, f"ob{evil}ey " + "me" * 100)
        shutil.copy(OPTIONS.program, program)
        store = os.path.join(folder, "x.store")
        subprocess.run([OPTIONS.ingero, "run", "--cuda-only", "-q", "-o", store,
                        program, "--steps", "5"], check=True, timeout=120,
                       env={**os.environ, "INGERO_DIR": f"{folder}/trace",
                            "INGERO_DIR_ONLY": "1"},
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        server = self.serve(store=store)

        def texts(value):
            if isinstance(value, str):
                yield value
            elif isinstance(value, (dict, list)):
                for part in (value.values() if isinstance(value, dict)
                             else value):
                    yield from texts(part)
        pid = server.tool("run_sql", sql="SELECT pid FROM operations LIMIT 1")
        pid = pid["structuredContent"]["rows"][0]["pid"]
        arguments = {"run_sql": {"sql": "SELECT * FROM processes"},
                     "compare_traces": {"other_db": store},
                     "get_timeline": {"pid": pid}}
        seen = 0
        for tool in server.ask("tools/list")["tools"]:
            result = server.tool(tool["name"], **arguments.get(tool["name"], {}))
            self.assertFalse(result["isError"], result)
            for text in texts(result["structuredContent"]):
                for c in "\u202e\u200b\x1b\n":
                    self.assertNotIn(c, text, tool["name"])
                seen += "ey me" in text or "ob" in text and "ey" in text
        self.assertGreater(seen, 5)

    def test_the_largest_answer_takes_bounded_memory(self):
        server = self.serve()
        for sql in ("SELECT hex(zeroblob(400000000))",
                    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 "
                    "FROM c WHERE x < 30000) SELECT group_concat(hex(zeroblob(10000))) FROM c"):
            result = server.tool("run_sql", sql=sql)
            self.assertTrue(result["isError"], result)
        with open(f"/proc/{server.process.pid}/status") as f:
            peak_kib = int(re.search(r"VmHWM:\s+(\d+) kB", f.read())[1])
        # 256 MiB of SQL, and what opening the store and a report take.
        self.assertLess(peak_kib, 512 << 10)
        self.assertEqual(server.ask("ping"), {})

    def test_the_configuration_of_the_readme(self):
        root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
        with open(os.path.join(root, "README.md")) as f:
            config = re.search(r'\{"mcpServers".*?\n\n', f.read(), re.S)[0]
        ours = json.loads(config)["mcpServers"]["ingero"]
        self.assertEqual(ours["command"], "ingero")
        done = subprocess.run(
            [ours["command"], *ours["args"]], cwd=root, timeout=60, check=True,
            env={**os.environ, "PATH": os.path.dirname(OPTIONS.ingero)},
            capture_output=True,
            input=b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}\n'
                  b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":'
                  b'{"name":"run_sql","arguments":{"sql":"SELECT 1"}}}\n')
        self.assertEqual(done.stderr, b"")
        last = json.loads(done.stdout.splitlines()[-1])
        self.assertFalse(last["result"]["isError"], last)

    def test_missing_or_damaged_store(self):
        folder = tempfile.mkdtemp(prefix="ingero-mcp-")
        self.addCleanup(shutil.rmtree, folder)
        store = os.path.join(folder, "x.store")
        # Started and ended without one: no failure, and said once.
        done = subprocess.run([OPTIONS.ingero, "mcp", "--db", store],
                              stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=20)
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(store, done.stderr)
        server = self.serve(store=store)
        for tool in server.ask("tools/list")["tools"]:
            result = server.tool(tool["name"], **self.arguments(tool["name"]))
            self.assertTrue(result["isError"], tool["name"])
            self.assertIn(store, result["content"][0]["text"])
        # It comes, is damaged, and is replaced while it is served.
        shutil.copytree(OPTIONS.store, store)
        data = os.path.join(store, "data.mdb")
        self.assertFalse(server.tool("get_causal_chains")["isError"])
        with open(data, "rb") as f:
            whole = f.read()
        with open(data + ".new", "wb") as f:
            f.write(whole[:40_000])
        os.rename(data + ".new", data)
        self.assertTrue(server.tool("get_causal_chains")["isError"])
        self.assertTrue(server.tool("run_sql", sql="SELECT 1")["isError"])
        with open(data + ".new", "wb") as f:
            f.write(whole)
        os.rename(data + ".new", data)
        self.assertFalse(server.tool("get_causal_chains")["isError"])
        self.assertEqual(server.end(), 0)

    def test_end_of_input_answers_what_was_asked(self):
        done = subprocess.run(
            [OPTIONS.ingero, "mcp", "--db", OPTIONS.store], timeout=20,
            input=b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}\n'
                  b'{"jsonrpc":"2.0","id":2,"method":"tools/list"}',
            capture_output=True)
        self.assertEqual(done.returncode, 0)
        self.assertEqual([json.loads(x)["id"] for x in done.stdout.splitlines()],
                         [1, 2])
        done = subprocess.run([OPTIONS.ingero, "mcp", "--db", OPTIONS.store],
                              stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=20)
        self.assertEqual((done.returncode, done.stdout), (0, b""))

    def test_ends_with_a_query_running(self):
        server = self.serve()
        server.send("tools/call", name="run_sql", arguments={"sql": ENDLESS})
        time.sleep(0.2)
        self.assertEqual(server.end(), 0)
        # By hand: what had no answer yet is told so.
        query = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
                            "params": {"name": "run_sql",
                                       "arguments": {"sql": ENDLESS}}})
        done = subprocess.run(
            [OPTIONS.ingero, "mcp", "--db", OPTIONS.store], timeout=20,
            input='{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}\n'
                  + query + "\n", capture_output=True, text=True)
        self.assertEqual(done.returncode, 0)
        last = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual(last["id"], 2)
        self.assertIn("input ended", last["error"]["message"])

    def test_ends_when_nobody_reads(self):
        read, write = os.pipe()
        server = Server(version=None, stdout=write)
        os.close(write)
        os.close(read)
        self.assertEqual(server.process.wait(20), 1)
        self.assertIn(b"nobody reads", server.process.stderr.read())
        server.process.stdin.close()
        server.process.stderr.close()

    def test_ends_when_its_parent_is_dead(self):
        # A parent that dies while others hold both pipes open.
        read, write = os.pipe()
        out_read, out_write = os.pipe()
        parent = subprocess.Popen(
            [sys.executable, "-c",
             "import subprocess, sys, time\n"
             "p = subprocess.Popen(sys.argv[1:])\n"
             "print(p.pid, file=sys.stderr, flush=True)\n"
             "time.sleep(60)", OPTIONS.ingero, "mcp", "--db", OPTIONS.store],
            stdin=read, stdout=out_write, stderr=subprocess.PIPE)
        pid = int(parent.stderr.readline())
        os.write(write, b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        self.assertTrue(select.select([out_read], [], [], 20)[0])
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        deadline = time.monotonic() + 20

        def runs():
            try:
                with open(f"/proc/{pid}/stat") as f:
                    return f.read().rsplit(")", 1)[1].split()[0] != "Z"
            except FileNotFoundError:
                return False
        while runs() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertFalse(runs())
        for fd in (read, write, out_read, out_write):
            os.close(fd)
        parent.stderr.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("ingero", "store", "program"):
        parser.add_argument("--" + name, required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
