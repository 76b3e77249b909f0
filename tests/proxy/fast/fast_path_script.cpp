#include "tests/proxy/fast/fast_path_script.hpp"

#include <algorithm>

namespace fenceguard::test {
namespace {

using Choices = std::vector<std::string>;

const Choices methods{"PUT",    "PUT",  "PUT",     "GET",   "GET",  "POST", "PATCH",
                      "DELETE", "HEAD", "OPTIONS", "MKCOL", "LOCK", "put"};

// Behind the path of the resource.
const Choices path_ends{"",      "",     "",       "",       "?a=b&c", "?",    "/",      "/b",    "//b",
                        "/../c", "/%62", "/b%20c", "/b%2fc", "?a#b",   "/b;c", "/~b._-", "/b\\c", "?a=%00"};

const Choices further_fields{"Content-Type: text/plain",
                             "Accept: */*",
                             "Cookie: a=b; c=d",
                             "X-Request-Id: 7f",
                             "If-Match: *",
                             "If-None-Match: \"x\"",
                             "Cache-Control: no-cache",
                             "Authorization: Basic eDp5",
                             "Connection: keep-alive",
                             "Connection: close",
                             "Connection: X-Hop",
                             "Connection: keep-alive, Cookie",
                             "X-Hop: 1",
                             "Keep-Alive: timeout=5",
                             "Proxy-Connection: close",
                             "TE: trailers",
                             "Trailer: X-Hop",
                             "Upgrade: h2c",
                             "Forwarded: for=192.0.2.1",
                             "Forwarded: for=\"open",
                             "X-Forwarded-For: 192.0.2.1",
                             "X-Forwarded-Proto: https",
                             "X-Real-IP: 192.0.2.1",
                             "X_Forwarded_For: 192.0.2.1",
                             "Via: 1.0 other",
                             "Proxy: http://x",
                             "X-HTTP-Method-Override: DELETE",
                             "X-Original-URL: /z",
                             "Depth: 0",
                             "Depth: infinity",
                             "Overwrite: T",
                             "Destination: /z",
                             "If: (<opaquelocktoken:a>)",
                             "Host: other",
                             "Transfer-Encoding: gzip",
                             "Content-Length: 0",
                             "Content_Length: 3",
                             "Fencing-Sequence: 9",
                             "Fencing-Signature: x",
                             "Fencing-Destination-Token: 5",
                             "Fencing_Token: 9",
                             "Fencing-Verdict: admitted",
                             "Empty:",
                             "Blank:  two ",
                             "Tab:\tx",
                             "Odd : x",
                             "Bare: a\rb",
                             "High: \xC3\xA9",
                             "Two: a  b",
                             "Comma: a,b",
                             " Folded: x"};

class Maker {
 public:
  Maker(std::mt19937& random, const std::string& path, int token)
      : random_{random}, path_{path}, token_{token} {}

  FastPathScript make() {
    FastPathScript script;
    const auto count = is_likely(60) ? 1 : 2 + below(2);
    for (std::size_t i = 0; i < count; ++i) {
      const auto method = one_of(methods);
      script.requests.push_back(request(method));
      script.are_heads.push_back(method == "HEAD");
    }
    const auto bytes = script.bytes().size();
    if (is_likely(40)) {
      for (std::size_t i = below(4); i > 0; --i) script.cuts.push_back(1 + below(bytes - 1));
      std::sort(script.cuts.begin(), script.cuts.end());
    }
    return script;
  }

 private:
  std::size_t below(std::size_t bound) {
    return std::uniform_int_distribution<std::size_t>{0, bound - 1}(random_);
  }
  bool is_likely(std::size_t percent) { return below(100) < percent; }
  const std::string& one_of(const Choices& choices) { return choices[below(choices.size())]; }

  std::string claim() {
    const auto token = std::to_string(token_);
    const auto what = below(20);
    if (what == 0) return "";
    if (what == 1) return "Fencing-Token: " + std::to_string(token_ - 1) + "\r\nFencing-Holder: h\r\n";
    if (what == 2) return "Fencing-Token: 0" + token + "\r\nFencing-Holder: h\r\n";
    if (what == 3) return "Fencing-Token: " + token + "\r\nFencing-Holder: other\r\n";
    if (what == 4) return "Fencing-Token: " + token + "\r\n";
    if (what == 5) return "Fencing-Holder: h\r\n";
    if (what == 6) return "Fencing-Token: " + token + "\r\nFENCING-TOKEN: " + token + "\r\n";
    return "fencing-token: " + token + "\r\nFencing-Holder: h\r\n";
  }

  std::string request(const std::string& method) {
    const bool is_plain = is_likely(50);
    auto bytes = method + " " + path_ + (is_plain ? "" : one_of(path_ends)) +
                 (is_plain || is_likely(95) ? " HTTP/1.1\r\n" : " HTTP/1.0\r\n");
    if (is_plain || is_likely(95)) bytes += "Host: guard\r\n";
    bytes += is_plain ? "Fencing-Token: " + std::to_string(token_) + "\r\nFencing-Holder: h\r\n" : claim();
    for (std::size_t i = is_plain ? 0 : below(3); i > 0; --i) bytes += one_of(further_fields) + "\r\n";
    // All of it comes, so that nobody waits for more.
    if (!is_plain && is_likely(10)) return bytes + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    const auto& words = one_of(upstream_words());
    if (!words.empty()) bytes += "Upstream-Do: " + words + "\r\n";
    constexpr std::size_t sizes[] = {0, 1, 100, 1'900, 2'100, 15'000, 40'000};
    const bool has_body = (method != "GET" && method != "DELETE" && method != "HEAD") || is_likely(5);
    const std::string body(has_body ? sizes[below(std::size(sizes))] : 0, 'b');
    if (!body.empty() || is_likely(10)) bytes += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    return bytes + "\r\n" + body;
  }

  std::mt19937& random_;
  const std::string& path_;
  const int token_;
};

}  // namespace

std::string FastPathScript::bytes() const {
  std::string all;
  for (const auto& request : requests) all += request;
  return all;
}

const std::vector<std::string>& upstream_words() {
  static const Choices words{"",
                             "",
                             "",
                             "",
                             "status=200 body=10",
                             "status=200 body=0",
                             "status=200 body=10 chunked",
                             "status=200 body=10 slow=1ms",
                             "status=200 body=10 chunked slow=1ms",
                             "status=200 body=15000",
                             "status=200 body=100000",
                             "status=200 body=10 until-close",
                             "status=200 body=10 http10",
                             "status=200 body=10 close",
                             "interim=103",
                             "interim=100 status=200 body=10",
                             "status=200 half body=100",
                             "status=200 half body=100 chunked",
                             "half-head",
                             "garbage",
                             "both-framings body=5",
                             "drop",
                             "reset",
                             "apply-reset",
                             "hold=20ms",
                             "hold-answer=20ms status=200 body=10",
                             "status=202",
                             "status=207 body=10",
                             "status=302 field=Location:/elsewhere",
                             "status=304",
                             "status=404 body=20",
                             "status=408",
                             "status=409",
                             "status=500 body=3",
                             "status=503",
                             "field=Fencing-Verdict:stale",
                             "field=Cache-Control:max-age=9",
                             "field=Connection:X-Hop",
                             "field=Content-Location:/other",
                             "field=Bad(Name:x",
                             "field=Date:never",
                             "field=Set-Cookie:a=b"};
  return words;
}

FastPathScript random_script(std::mt19937& random, const std::string& path, int token) {
  return Maker{random, path, token}.make();
}

}  // namespace fenceguard::test
