#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ingero mcp --http`: who may ask, sessions, mistakes, and how it ends.

  mcp_http_test.py --ingero I --store FOLDER
"""
import argparse
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

OPTIONS = None
ENDLESS = ("WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
           "SELECT count(*) FROM c")


class HttpTest(unittest.TestCase):
    def serve(self, host="127.0.0.1", token=None):
        env = {k: v for k, v in os.environ.items() if k != "INGERO_MCP_TOKEN"}
        if token:
            env["INGERO_MCP_TOKEN"] = token
        process = subprocess.Popen(
            [OPTIONS.ingero, "mcp", "--db", OPTIONS.store, "--http",
             host + ":0"], env=env, stderr=subprocess.PIPE, text=True)

        def stop():
            process.kill()
            process.wait()
            process.stderr.close()
        self.addCleanup(stop)
        self.process = process
        self.port = int(re.search(r":(\d+)/mcp$",
                                  process.stderr.readline().strip())[1])

    def request(self, body, method="POST", path="/mcp", session=None,
                **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port,
                                                timeout=60)
        if not isinstance(body, (bytes, type(None))):
            body = json.dumps(body).encode()
        headers = {k.replace("_", "-"): v for k, v in headers.items()}
        if session:
            headers["Mcp-Session-Id"] = session
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        data = response.read()
        connection.close()
        return response.status, response.headers, data

    def initialize(self, version="2025-06-18", answered=None, **headers):
        status, answer, data = self.request(
            {"jsonrpc": "2.0", "id": 1, "method": "initialize",
             "params": {"protocolVersion": version}}, **headers)
        self.assertEqual(status, 200, data)
        self.assertEqual(json.loads(data)["result"]["protocolVersion"],
                         answered or version)
        return answer["Mcp-Session-Id"]

    def test_versions(self):
        self.serve()
        for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"):
            self.initialize(version)
        self.initialize("9999-01-01", answered="2025-11-25")

    def test_a_session(self):
        self.serve()
        session = self.initialize()
        self.assertEqual(self.request(
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            session=session)[0], 202)
        status, _, data = self.request(
            {"jsonrpc": "2.0", "id": "x", "method": "tools/call",
             "params": {"name": "get_causal_chains"}}, session=session)
        answer = json.loads(data)
        self.assertEqual((status, answer["id"]), (200, "x"))
        self.assertFalse(answer["result"]["isError"])
        ping = {"jsonrpc": "2.0", "id": 5, "method": "ping"}
        batch = json.loads(self.request(
            [ping, {"jsonrpc": "2.0", "method": "x"}, {**ping, "id": 6}],
            session=session)[2])
        self.assertEqual([a["id"] for a in batch], [5, 6])
        for body, code in [(b"{", -32700), (b"42", -32600), (b"{}", -32600)]:
            answer = json.loads(self.request(body, session=session)[2])
            self.assertEqual(answer["error"]["code"], code, body)
        self.assertEqual(self.request(ping)[0], 400)
        self.assertEqual(self.request(ping, session="none")[0], 404)
        self.assertEqual(self.request(ping, session=session,
                                      MCP_Protocol_Version="1999-01-01")[0],
                         400)
        self.assertEqual(self.request(ping, session=session,
                                      MCP_Protocol_Version="2025-11-25")[0],
                         200)
        self.assertEqual(self.request(None, "GET", session=session)[0], 405)
        self.assertEqual(self.request(ping, path="/other")[0], 404)
        self.assertEqual(self.request(None, "DELETE", session=session)[0], 204)
        self.assertEqual(self.request(ping, session=session)[0], 404)

    def test_other_origins_and_names_may_not(self):
        self.serve()
        for headers in ({"Origin": "http://evil.example"},
                        {"Origin": "http://127.0.0.1.evil.example"},
                        {"Origin": "null"}, {"Host": "evil.example"},
                        {"Host": "localhost.evil.example:80"}):
            self.assertEqual(self.request(
                {"jsonrpc": "2.0", "id": 1, "method": "ping"}, **headers)[0],
                403, headers)
        for origin in ("http://localhost:3000", "http://127.0.0.1",
                       "http://[::1]:5"):
            self.initialize(Origin=origin)

    def test_token(self):
        self.serve(host="0.0.0.0", token="secret")
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        for wrong in ({}, {"Authorization": "secret"},
                      {"Authorization": "Bearer secre"},
                      {"Authorization": "Bearer secrets"},
                      {"Authorization": "Basic secret"}):
            self.assertEqual(self.request(ping, **wrong)[0], 401, wrong)
        self.initialize(Authorization="Bearer secret")

    def test_not_beyond_this_machine_without_a_token(self):
        env = {k: v for k, v in os.environ.items() if k != "INGERO_MCP_TOKEN"}
        for where in ("0.0.0.0:0", "127.0.0.1", "127.0.0.1:x", ":80",
                      "127.0.0.1:70000"):
            done = subprocess.run([OPTIONS.ingero, "mcp", "--http", where],
                                  env=env, capture_output=True, text=True,
                                  timeout=20)
            self.assertEqual((done.returncode, done.stdout), (2, ""), where)
            self.assertEqual(done.stderr.count("\n"), 1)
        self.serve()
        done = subprocess.run([OPTIONS.ingero, "mcp", "--http",
                               f"127.0.0.1:{self.port}"], capture_output=True,
                              text=True, timeout=20)
        self.assertEqual(done.returncode, 1)

    def test_ping_and_cancel_beside_a_long_query_and_the_end(self):
        self.serve()
        session, other = self.initialize(), self.initialize()
        answers = []

        def ask(number):
            answers.append(self.request(
                {"jsonrpc": "2.0", "id": number, "method": "tools/call",
                 "params": {"name": "run_sql", "arguments": {"sql": ENDLESS}}},
                session=session)[0])
        asking = threading.Thread(target=ask, args=(7,))
        asking.start()
        time.sleep(0.3)
        for s in (session, other):
            self.assertEqual(self.request(
                {"jsonrpc": "2.0", "id": 1, "method": "ping"}, session=s)[0],
                200)
        self.request({"jsonrpc": "2.0", "method": "notifications/cancelled",
                      "params": {"requestId": 7}}, session=session)
        asking.join(30)
        self.assertEqual(answers, [202])
        asking = threading.Thread(target=ask, args=(8,))
        asking.start()
        time.sleep(0.3)
        self.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.process.wait(30), 0)
        asking.join(30)

    def question(self, number, sql, token=None):
        params = {"name": "run_sql", "arguments": {"sql": sql}}
        if token is not None:
            params["_meta"] = {"progressToken": token}
        return {"jsonrpc": "2.0", "id": number, "method": "tools/call",
                "params": params}

    def test_a_question_is_answered_beside_another_sessions_long_one(self):
        self.serve()
        session, other = self.initialize(), self.initialize()
        answers = []
        asking = threading.Thread(target=lambda: answers.append(self.request(
            self.question(7, ENDLESS), session=session)[0]))
        asking.start()
        time.sleep(0.3)
        data = self.request(self.question(1, "SELECT 2 AS two"),
                            session=other)[2]
        self.assertEqual(json.loads(data)["result"]["structuredContent"]
                         ["rows"], [{"two": 2}])
        self.assertEqual(answers, [])
        self.request({"jsonrpc": "2.0", "method": "notifications/cancelled",
                      "params": {"requestId": 7}}, session=session)
        asking.join(30)
        self.assertEqual(answers, [202])

    def stream(self, body, session):
        connection = http.client.HTTPConnection("127.0.0.1", self.port,
                                                timeout=60)
        connection.request("POST", "/mcp", json.dumps(body), {
            "Mcp-Session-Id": session,
            "Accept": "application/json, text/event-stream"})
        response = connection.getresponse()
        self.assertEqual(response.getheader("Content-Type"),
                         "text/event-stream")
        return connection, response

    def events(self, response):
        for line in response:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    def test_progress_comes_as_events(self):
        self.serve()
        session = self.initialize()
        for token in ("t", 5):
            connection, response = self.stream(
                self.question(9, ENDLESS, token), session)
            said = []
            for event in self.events(response):
                self.assertEqual(event["method"], "notifications/progress")
                self.assertEqual(event["params"]["progressToken"], token)
                said.append(event["params"]["progress"])
                if len(said) == 2:
                    self.request({"jsonrpc": "2.0",
                                  "method": "notifications/cancelled",
                                  "params": {"requestId": 9}}, session=session)
            self.assertEqual(said, sorted(set(said)))
            self.assertGreaterEqual(len(said), 2)
            connection.close()
        # Short ones: just the answer. Without a token, plain JSON.
        connection, response = self.stream(
            self.question(10, "SELECT 2 AS two", "t"), session)
        answers = list(self.events(response))
        self.assertEqual([a["id"] for a in answers], [10])
        self.assertFalse(answers[0]["result"]["isError"])
        connection.close()
        for wrong in ({}, [], "x", {"_meta": 3}, {"_meta": {}}):
            status, headers, data = self.request(
                {"jsonrpc": "2.0", "id": 11, "method": "tools/list",
                 "params": wrong}, session=session,
                Accept="application/json, text/event-stream")
            self.assertEqual((status, headers["Content-Type"]),
                             (200, "application/json"), data)

    def test_who_hangs_up_on_a_stream_asks_no_more(self):
        self.serve()
        session = self.initialize()
        connection, response = self.stream(
            self.question(1, ENDLESS, "t"), session)
        next(self.events(response))
        connection.sock.shutdown(socket.SHUT_RDWR)
        response.close()
        connection.close()
        # What a session asks runs one after another: this one comes when that
        # has ended, which takes 20 s where nothing cancels it. The other
        # session's, begun at the same time, is the clock.
        other, answers = self.initialize(), []
        asking = threading.Thread(target=lambda: answers.append(self.request(
            self.question(7, ENDLESS), session=other)[0]))
        asking.start()
        data = self.request(self.question(2, "SELECT 2 AS two"),
                            session=session)[2]
        self.assertFalse(json.loads(data)["result"]["isError"])
        self.assertEqual(answers, [])
        self.request({"jsonrpc": "2.0", "method": "notifications/cancelled",
                      "params": {"requestId": 7}}, session=other)
        asking.join(30)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("ingero", "store"):
        parser.add_argument("--" + name, required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
