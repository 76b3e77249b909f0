#include "demo/clients/clients.hpp"

#include <fmt/format.h>

#include "adapters/zookeeper/guard.hpp"
#include "guard/error.hpp"

namespace fenceguard::zookeeper {
namespace {

// An account is created or set, whichever of the two is possible; a client that comes in between makes us try
// again.
constexpr int attempts = 10;

// The demonstration's accounts: 'ROOT/PLACE/NAME'.
class NodeClient : public FencedClient {
 public:
  NodeClient(const Url& url, const std::string& place)
      : client_{address_beside_source(url)},
        guard_{client_},
        place_{fmt::format("{}/{}", client_.address().root, place)} {}

  void make_place() override { client_.connection().session->make_path(place_); }
  void remove(const std::string& path) override {
    const auto session = client_.connection().session;
    session->remove(node_of(path));
    session->remove(place_);
  }

  std::optional<std::string> read(const std::string& path) override {
    const auto session = client_.connection().session;
    // Behind a call that goes through the ensemble's log a read sees what others wrote before.
    (void)certain([&] { return session->multi({check(place_, any_version)}); });
    auto answer = session->get(node_of(path));
    if (answer.code != Code::ok) return std::nullopt;
    return std::move(answer.data);
  }

  void write(const std::string& path, const std::string& body) override {
    const auto session = client_.connection().session;
    for (int attempt = 0; attempt < attempts; ++attempt) {
      if (session->set(node_of(path), body).code == Code::ok) return;
      if (session->create(node_of(path), body).code == Code::ok) return;
    }
    throw Unavailable(fmt::format("{} cannot be written", node_of(path)));
  }

  fenceguard::FencedRead read(const Claim& claim, const std::string& path) override {
    auto read = guard_.read(claim, node_of(path));
    if (!read.answer || read.answer->code != Code::ok) return {read.ruling, std::nullopt};
    return {read.ruling, std::move(read.answer->data)};
  }

  Ruling write(const Claim& claim, const std::string& path, const std::string& body) override {
    for (int attempt = 0; attempt < attempts; ++attempt) {
      for (const auto& op : {set(node_of(path), body), create(node_of(path), body)}) {
        auto written = guard_.write(claim, {op});
        if (!written.result || written.took_effect()) return written.ruling;
      }
    }
    throw Unavailable(fmt::format("{} cannot be written", node_of(path)));
  }

 private:
  [[nodiscard]] std::string node_of(const std::string& path) const {
    return place_ + "/" + segment_of(Resource{path});
  }

  Client client_;
  Guard guard_;
  const std::string place_;
};

}  // namespace

std::unique_ptr<FencedClient> open_fenced_client(const Url& url, const std::string& place) {
  return std::make_unique<NodeClient>(url, place);
}

}  // namespace fenceguard::zookeeper
