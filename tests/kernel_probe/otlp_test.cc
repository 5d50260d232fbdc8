// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/otlp.h"

#include <gtest/gtest.h>

#include <map>

#include "wire/wire.h"

namespace ingero::kernel_probe {
namespace {

using Variables = std::map<std::string, std::string>;

Result<OtlpOptions> Parse(const char* url, const Variables& variables = {}) {
  return ParseOtlp(url, [&](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  });
}

std::string Url(const char* url, const Variables& variables = {}) {
  auto o = Parse(url, variables);
  return o.ok() ? o->url() : "error: " + o.status().message();
}

TEST(OtlpOptionsTest, AnAddressGetsTheSignalsPath) {
  for (const char* url :
       {"http://127.0.0.1:4318", "http://127.0.0.1:4318/",
        "http://127.0.0.1:4318/v1/metrics"})
    EXPECT_EQ(Url(url), "http://127.0.0.1:4318/v1/metrics");
  EXPECT_EQ(Url("http://[::1]:4318/a//"), "http://[::1]:4318/a/v1/metrics");
  EXPECT_EQ(Url("http://[::1]"), "http://[::1]:80/v1/metrics");
  EXPECT_EQ(Url(""), "http://localhost:4318/v1/metrics");
}

TEST(OtlpOptionsTest, TheEnvironmentIsTheStandards) {
  const Variables all = {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:1/x"}};
  EXPECT_EQ(Url("", all), "http://all:1/x/v1/metrics");
  EXPECT_EQ(Url("http://own:2", all), "http://own:2/v1/metrics");
  // Of the signal, and as it is.
  EXPECT_EQ(Url("", {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:1"},
                     {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://m:3/y"}}),
            "http://m:3/y");
  EXPECT_EQ(Url("", {{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://m:3"}}),
            "http://m:3/");
  auto o = Parse(
      "", {{"OTEL_EXPORTER_OTLP_HEADERS", "a=1"},
           {"OTEL_EXPORTER_OTLP_METRICS_HEADERS",
            " authorization = Bearer%20x%3D , X-Scope-OrgID=t%zz,"},
           {"OTEL_EXPORTER_OTLP_TIMEOUT", "2500"},
           {"OTEL_METRIC_EXPORT_INTERVAL", "60000"},
           {"OTEL_RESOURCE_ATTRIBUTES", "team=gpu,service.name=x,host.name=h"},
           {"OTEL_SERVICE_NAME", "mine"}});
  ASSERT_TRUE(o.ok()) << o.status().message();
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(o->headers, (Pairs{{"authorization", "Bearer x="},
                               {"X-Scope-OrgID", "t%zz"}}));
  EXPECT_EQ(o->timeout, kMillisecond * 2500);
  EXPECT_EQ(o->every, kSecond * 60);
  const std::map<std::string, std::string> attributes(o->attributes.begin(),
                                                      o->attributes.end());
  EXPECT_EQ(attributes.at("service.name"), "mine");
  EXPECT_EQ(attributes.at("host.name"), "h");
  EXPECT_EQ(attributes.at("team"), "gpu");
  EXPECT_EQ(attributes.size(), o->attributes.size());
}

TEST(OtlpOptionsTest, WhatCannotBeUsedSaysWhatToDo) {
  struct {
    const char* url;
    Variables variables;
    const char* says;
  } const kCases[] = {
      {"https://c:4318", {}, "no TLS; send to a collector on this machine"},
      {"", {{"OTEL_EXPORTER_OTLP_ENDPOINT", "https://c"}},
       "OTEL_EXPORTER_OTLP_ENDPOINT: https://c: ingero-kprobe speaks no TLS"},
      {"c:4318", {}, "write for example http://127.0.0.1:4318"},
      {"http://", {}, "is not an address"},
      {"http://c:0", {}, "is not an address"},
      {"http://c:99999", {}, "is not an address"},
      {"http://c d", {}, "is not an address"},
      {"http://c/a?b=c", {}, "is not an address"},
      {"http://c/a\r\nX: y", {}, "is not an address"},
      {"http://u:secret@c", {}, "OTEL_EXPORTER_OTLP_HEADERS"},
      {"", {{"OTEL_EXPORTER_OTLP_HEADERS", "nonsense"}}, "KEY=VALUE"},
      {"", {{"OTEL_EXPORTER_OTLP_HEADERS", "a=s3cret%0d%0aHost: x"}},
       "no HTTP header can have"},
      {"", {{"OTEL_EXPORTER_OTLP_HEADERS", "a b=s3cret"}},
       "no HTTP header can have"},
      {"", {{"OTEL_EXPORTER_OTLP_HEADERS", "Content-Length=s3cret"}},
       "is ingero-kprobe's to set"},
      {"", {{"OTEL_EXPORTER_OTLP_TIMEOUT", "10s"}}, "milliseconds"},
      {"", {{"OTEL_METRIC_EXPORT_INTERVAL", "0"}}, "milliseconds"},
      {"", {{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}}, "http/json"}};
  for (const auto& c : kCases) {
    auto o = Parse(c.url, c.variables);
    ASSERT_FALSE(o.ok()) << c.says;
    const std::string& message = o.status().message();
    EXPECT_NE(message.find(c.says), std::string::npos) << message;
    // Never what may be a secret.
    EXPECT_EQ(message.find("s3cret"), std::string::npos) << message;
    EXPECT_EQ(message.find("secret@"), std::string::npos) << message;
  }
}

TEST(OtlpJsonTest, IsTheListOfMetrics) {
  Figures f;
  f.switches_seen = UINT64_MAX;
  f.own_cpu = kMillisecond * 1500;
  f.lost[INGERO_LOSS_WRITE_FAILED] = 7;
  f.gpu_percent = {{0, 41}};
  OtlpOptions o;
  o.attributes = {{"a\"\\", "b\n\x01\xc3\xa9"}, {"process.pid", "12"}};
  const std::string json = OtlpJson(f, o, 5, 6);
  for (const MetricFamily& m : MetricFamilies(f))
    EXPECT_NE(json.find("\"name\":\"" + std::string(m.name) + "\""),
              std::string::npos)
        << m.name;
  EXPECT_EQ(json.find('\n'), std::string::npos);
  for (const char* part :
       {"{\"key\":\"process.pid\",\"value\":{\"intValue\":\"12\"}}",
        "\"unit\":\"{switch}\",\"sum\":{\"aggregationTemporality\":2,"
        "\"isMonotonic\":true,\"dataPoints\":[{\"startTimeUnixNano\":\"5\","
        "\"timeUnixNano\":\"6\",\"asInt\":\"9223372036854775807\"}]}",
        "\"asDouble\":1.5}",
        "\"gauge\":{\"dataPoints\":[{\"attributes\":[{\"key\":\"gpu\",\"value\":"
        "{\"stringValue\":\"0\"}}],\"timeUnixNano\":\"6\",\"asDouble\":0.41}]}",
        "{\"stringValue\":\"write-failed\"}}],\"startTimeUnixNano\":\"5\","
        "\"timeUnixNano\":\"6\",\"asInt\":\"7\"}"})
    EXPECT_NE(json.find(part), std::string::npos) << part << "\n" << json;
}

TEST(OtlpAnswerTest, IsReadAsHttp) {
  const auto read = [](const std::string& bytes, bool closed = false) {
    return ReadOtlpAnswer(bytes, closed);
  };
  const std::string ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
  for (size_t size = 0; size < ok.size(); ++size)
    EXPECT_FALSE(read(ok.substr(0, size)).whole) << size;
  EXPECT_TRUE(read(ok).whole);
  EXPECT_EQ(read(ok).status, 200);
  EXPECT_TRUE(read("HTTP/1.1 200 OK\r\n\r\n{", true).whole);
  EXPECT_FALSE(read("HTTP/1.1 200 OK\r\n\r\n{").whole);
  EXPECT_EQ(read("HTTP/1.1 100 Continue\r\n\r\n" + ok).status, 200);
  EXPECT_TRUE(
      read("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n"
           "0\r\n\r\n").whole);
  EXPECT_EQ(read("SSH-2.0-x\r\n\r\n").status, 0);
  EXPECT_TRUE(read("SSH-2.0-x\r\n\r\n").whole);
  EXPECT_EQ(read("HTTP/1.1 9x9 OK\r\n\r\n").status, 0);
  const OtlpAnswer busy =
      read("HTTP/1.1 429 Too Many\r\nRETRY-AFTER: 120\r\n\r\n", true);
  EXPECT_EQ(busy.status, 429);
  EXPECT_EQ(busy.retry_after, kSecond * 120);
  EXPECT_FALSE(read("HTTP/1.1 503 x\r\nRetry-After: Fri, 31 Dec\r\n\r\n", true)
                   .retry_after.has_value());
  EXPECT_EQ(read("HTTP/1.1 200 OK\r\n\r\n{\"partialSuccess\":"
                 "{\"rejectedDataPoints\":\"3\"}}", true).rejected, 3u);
}

}  // namespace
}  // namespace ingero::kernel_probe
