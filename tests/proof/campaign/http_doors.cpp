#include <fmt/format.h>

#include "demo/clients/clients.hpp"
#include "guard/error.hpp"
#include "guard/support/percent.hpp"
#include "server/http/client.hpp"
#include "tests/proof/campaign/door.hpp"

namespace fenceguard::campaign {
namespace {

// The object RESOURCE. What an answer means is said in docs/http.md.
class HttpDoor : public Door {
 public:
  explicit HttpDoor(const std::string& server) : client_{server} {}

  Ruling advance(const Claim& claim) override {
    return ruling_of(send("HEAD", claim.resource, &claim), false);
  }

  Ruling write(const Claim& claim, const std::string& entry) override {
    return ruling_of(send("PUT", claim.resource, &claim, entry), true);
  }

  Read read(const Claim& claim) override {
    auto response = send("GET", claim.resource, &claim);
    Read read{ruling_of(response, false)};
    if (read.ruling.verdict == Verdict::admitted) read.entry = entry_of(response);
    return read;
  }

  std::optional<std::string> look(const Resource& resource) override {
    return entry_of(send("GET", resource, nullptr));
  }

  void write_unguarded(const Resource& resource, const std::string& entry) override {
    const auto response = send("PUT", resource, nullptr, entry);
    if (response.status / 100 != 2) throw OutcomeUnknown(fmt::format("answered {}", response.status));
  }

 private:
  http::Response send(const char* method, const Resource& resource, const Claim* claim,
                      const std::string& body = {}) {
    http::Request request{
        .method = method, .target = "/" + percent_encode_path(resource.name()), .fields = {}, .body = body};
    if (claim != nullptr) {
      request.fields.add("Fencing-Token", to_string(claim->token));
      request.fields.add("Fencing-Holder", claim->holder.id());
    }
    return client_.send(request);
  }

  static std::optional<std::string> entry_of(const http::Response& response) {
    if (response.status == 404) return std::nullopt;
    if (response.status != 200) throw Unavailable(fmt::format("answered {}", response.status));
    return response.body;
  }

  static Ruling ruling_of(const http::Response& response, bool is_write) {
    const auto word = response.fields.single("Fencing-Verdict");
    const auto verdict = word ? parse_verdict(*word) : std::nullopt;
    if (verdict == Verdict::admitted && is_write && response.status / 100 != 2)
      throw OutcomeUnknown(fmt::format("the storage answered {}", response.status));
    if (word && !verdict && *word != "unknown")
      throw Unavailable(fmt::format("answered {}", response.status));
    if (!verdict) throw OutcomeUnknown(fmt::format("answered {}", response.status));
    const auto highest = response.fields.single("Fencing-Highest");
    return {.verdict = *verdict, .highest = highest ? parse_decimal(*highest).value_or(0) : 0, .fence = {}};
  }

  http::Client client_;
};

class FileDoor : public Door {
 public:
  explicit FileDoor(const Url& url) : client_{sqlite::open_raw_client(url)} {}
  Ruling advance(const Claim& /*claim*/) override { throw InvalidInput("no guard here"); }
  Ruling write(const Claim& /*claim*/, const std::string& /*entry*/) override {
    throw InvalidInput("no guard here");
  }
  Read read(const Claim& /*claim*/) override { throw InvalidInput("no guard here"); }
  std::optional<std::string> look(const Resource& resource) override {
    return client_->read(resource.name());
  }
  void write_unguarded(const Resource& resource, const std::string& entry) override {
    client_->write(resource.name(), entry);
  }

 private:
  std::unique_ptr<RawClient> client_;
};

}  // namespace

std::unique_ptr<Door> open_http(const std::string& server) {
  return std::make_unique<HttpDoor>(server);
}
std::unique_ptr<Door> open_file(const Url& url) {
  return std::make_unique<FileDoor>(url);
}

}  // namespace fenceguard::campaign
