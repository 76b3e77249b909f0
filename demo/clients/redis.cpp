#include "demo/clients/clients.hpp"

#include <fmt/format.h>

#include "adapters/redis/fences/address_beside_source.hpp"
#include "adapters/redis/guard.hpp"
#include "adapters/redis/wire/errors.hpp"
#include "demo/clients/redis_cli.hpp"

namespace fenceguard::redis {
namespace {

// The demonstration's accounts: '{accounts/42}:PLACE', in the slot of their fence.
std::string key_of(const std::string& path, const std::string& place) {
  return fmt::format("{{{}}}:{}", path, place);
}

class KeyClient : public FencedClient {
 public:
  KeyClient(const Url& url, std::string place)
      : client_{address_beside_source(url)}, place_{std::move(place)} {}

  void remove(const std::string& path) override { (void)call({"DEL", key_of(path)}); }

  std::optional<std::string> read(const std::string& path) override {
    return body_of(call({"GET", key_of(path)}));
  }

  void write(const std::string& path, const std::string& body) override {
    (void)call({"SET", key_of(path), body});
  }

  fenceguard::FencedRead read(const Claim& claim, const std::string& path) override {
    auto read = Guard{client_}.read(claim, {"GET", key_of(path)});
    if (read.replies.empty()) return {read.ruling, std::nullopt};
    return {read.ruling, body_of(unless_error("reading an account", std::move(read.replies.front())))};
  }

  Ruling write(const Claim& claim, const std::string& path, const std::string& body) override {
    auto written = Guard{client_}.write(claim, {"SET", key_of(path), body});
    for (auto& reply : written.replies) (void)unless_error("writing an account", std::move(reply));
    return written.ruling;
  }

 private:
  // One command, whose second word is its key.
  Reply call(const std::vector<std::string>& words) {
    const std::vector<std::string_view> views{words.begin(), words.end()};
    return unless_error("using an account", client_.call(words.at(1), views));
  }

  static std::optional<std::string> body_of(const Reply& reply) {
    return reply.is_nil() ? std::nullopt : std::optional{reply.text};
  }

  [[nodiscard]] std::string key_of(const std::string& path) const { return redis::key_of(path, place_); }

  Client client_;
  std::string place_;
};

}  // namespace

std::unique_ptr<FencedClient> open_fenced_client(const Url& url, const std::string& place) {
  return std::make_unique<KeyClient>(url, place);
}

demo::RedisCliOptions redis_cli_options(const Url& url, const std::string& place, const std::string& path,
                                        const std::string& sidecar) {
  const auto address = address_beside_source(url);
  demo::RedisCliOptions options{.key = key_of(path, place), .resource = path};
  const auto& server = sidecar.empty() ? address.endpoints.front() : parse_endpoint(sidecar);
  if (server.host.empty()) {
    options.arguments = {"-s", server.socket};
  } else {
    options.arguments = {"-h", server.host, "-p", std::to_string(server.port)};
  }
  // The sidecar lends its own user, and begins in the database of its URL.
  if (!sidecar.empty()) return options;
  if (address.endpoints.size() > 1) options.arguments.emplace_back("-c");
  if (!address.user.empty()) options.arguments.insert(options.arguments.end(), {"--user", address.user});
  options.arguments.insert(options.arguments.end(), {"-n", std::to_string(address.database)});
  options.password = address.password;
  return options;
}

}  // namespace fenceguard::redis
