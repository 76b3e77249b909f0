#include "server/fencing/http_method.hpp"

#include <fmt/format.h>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "guard/error.hpp"
#include "server/http/client.hpp"
#include "server/net/address.hpp"

namespace fenceguard {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t answer_bytes_max = 64 * 1024;
constexpr std::string_view scheme = "http://";

}  // namespace

HttpMethod::HttpMethod(std::string_view url) {
  if (url.starts_with("https:"))
    throw InvalidInput(
        "--fence-method http: it speaks no TLS; for https: give command:PATH with a program that does, such "
        "as curl");
  if (!url.starts_with(scheme)) throw InvalidInput("--fence-method http: reads http:http://HOST:PORT/PATH");
  url.remove_prefix(scheme.size());
  const auto end = std::min(url.find_first_of("/?#"), url.size());
  std::string authority{url.substr(0, end)};
  if (authority.find('@') != std::string::npos)
    throw InvalidInput(
        "--fence-method http: there is no user in its URL; for a service that asks for one give "
        "command:PATH");
  const auto colon = authority.rfind(':');
  if (colon == std::string::npos || authority.ends_with(']')) authority += ":80";
  (void)net::Address::parse(authority);
  const auto path = url.substr(end, url.find('#') - end);
  server_ = fmt::format("{}{}", scheme, authority);
  target_ = path.starts_with('/') ? std::string{path} : fmt::format("/{}", path);
  for (const char c : target_) {
    if (c <= ' ' || c == 0x7F) throw InvalidInput("--fence-method http: its path holds a space or the like");
  }
}

FenceResult HttpMethod::run(const TakeOver& take_over, const FenceRun& run) {
  const auto deadline = steady_clock::now() + run.limit;
  try {
    http::Client client{server_, run.limit};
    client.limit_body(answer_bytes_max);
    http::Request request;
    request.method = "POST";
    request.target = target_;
    request.fields.add("Content-Type", "application/json");
    request.fields.add("Connection", "close");
    request.body =
        boost::json::serialize(boost::json::object{{"resource", take_over.resource},
                                                   {"old_token", std::to_string(take_over.old_token)},
                                                   {"new_token", std::to_string(take_over.new_token)}});
    const auto answer = client.send(request);
    // 202 and 207 say that it is still to be done, or in part.
    const bool is_done =
        answer.status >= 200 && answer.status < 300 && answer.status != 202 && answer.status != 207;
    return {is_done ? FenceResult::Outcome::success : FenceResult::Outcome::failure,
            fmt::format("status {}", answer.status)};
  } catch (const Error& error) {
    const bool is_late = steady_clock::now() >= deadline;
    return {is_late ? FenceResult::Outcome::timeout : FenceResult::Outcome::failure, printable(error.what())};
  }
}

}  // namespace fenceguard
