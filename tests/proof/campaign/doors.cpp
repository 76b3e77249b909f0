#include <fmt/format.h>

#include "adapters/etcd/fences/address_beside_source.hpp"
#include "adapters/etcd/guard.hpp"
#include "adapters/postgres/connect.hpp"
#include "adapters/postgres/errors.hpp"
#include "adapters/postgres/guard.hpp"
#include "adapters/postgres/pqxx_versions.hpp"
#include "adapters/redis/fences/address_beside_source.hpp"
#include "adapters/redis/guard.hpp"
#include "adapters/redis/wire/errors.hpp"
#include "adapters/zookeeper/guard.hpp"
#include "guard/error.hpp"
#include "tests/proof/campaign/door.hpp"

namespace fenceguard::campaign {
namespace {

// The list {RESOURCE}:log.
class RedisDoor : public Door {
 public:
  explicit RedisDoor(const Url& url) : client_{redis::address_beside_source(url)} {}

  Ruling advance(const Claim& claim) override { return guard_.advance(claim); }

  Ruling write(const Claim& claim, const std::string& entry) override {
    auto written = guard_.write(claim, {"RPUSH", key_of(claim.resource), entry});
    for (auto& reply : written.replies) (void)redis::unless_error("writing", std::move(reply));
    return written.ruling;
  }

  Read read(const Claim& claim) override {
    auto read = guard_.read(claim, {"LINDEX", key_of(claim.resource), "-1"});
    if (read.replies.empty()) return {read.ruling};
    return {read.ruling, entry_of(redis::unless_error("reading", std::move(read.replies.front())))};
  }

  std::optional<std::string> look(const Resource& resource) override {
    return entry_of(call({"LINDEX", key_of(resource), "-1"}));
  }

  void write_unguarded(const Resource& resource, const std::string& entry) override {
    (void)call({"RPUSH", key_of(resource), entry});
  }

 private:
  redis::Reply call(const std::vector<std::string>& words) {
    const std::vector<std::string_view> views{words.begin(), words.end()};
    return redis::unless_error("calling", client_.call(words.at(1), views));
  }
  static std::string key_of(const Resource& resource) { return fmt::format("{{{}}}:log", resource.name()); }
  static std::optional<std::string> entry_of(const redis::Reply& reply) {
    return reply.is_nil() ? std::nullopt : std::optional{reply.text};
  }

  redis::Client client_;
  redis::Guard guard_{client_};
};

// The same list through a sidecar, each command under a claim of its own, as clients behind a pool say it. An
// advance is a read that nobody looks at.
class SidecarDoor : public Door {
 public:
  explicit SidecarDoor(const std::string& url) : client_{url} {}

  Ruling advance(const Claim& claim) override { return read(claim).ruling; }

  Ruling write(const Claim& claim, const std::string& entry) override {
    return ruling_of(call(claim, {"RPUSH", key_of(claim.resource), entry}));
  }

  Read read(const Claim& claim) override {
    const auto reply = call(claim, {"LINDEX", key_of(claim.resource), "-1"});
    Read read{ruling_of(reply)};
    if (read.ruling.verdict == Verdict::admitted) read.entry = entry_of(reply);
    return read;
  }

  std::optional<std::string> look(const Resource& resource) override {
    const auto key = key_of(resource);
    return entry_of(certain(client_.call(key, std::vector<std::string_view>{"LINDEX", key, "-1"})));
  }

  void write_unguarded(const Resource& /*resource*/, const std::string& /*entry*/) override {
    throw InvalidInput("nothing is written here without a claim");
  }

 private:
  redis::Reply call(const Claim& claim, const std::vector<std::string>& command) {
    const auto token = to_string(claim.token);
    std::vector<std::string_view> words{"FENCED", claim.resource.name(), token, claim.holder.id()};
    words.insert(words.end(), command.begin(), command.end());
    return client_.call(command.at(1), words);
  }

  // The errors of docs/redis-sidecar.md.
  static Ruling ruling_of(const redis::Reply& reply) {
    const auto word = reply.is_error() ? reply.text.substr(0, reply.text.find(' ')) : std::string{};
    if (word != "STALE" && word != "CONFLICT") {
      (void)certain(reply);
      return {.verdict = Verdict::admitted, .fence = {}};
    }
    const auto at = reply.text.find(" highest=");
    const auto begin = at + std::string_view{" highest="}.size();
    const auto highest = at == std::string::npos
                             ? std::nullopt
                             : parse_decimal(reply.text.substr(begin, reply.text.find(' ', begin) - begin));
    return {.verdict = word == "STALE" ? Verdict::stale : Verdict::conflict,
            .highest = highest.value_or(0),
            .fence = {}};
  }

  static redis::Reply certain(redis::Reply reply) {
    if (!reply.is_error()) return reply;
    if (reply.text.starts_with("UNKNOWN")) throw OutcomeUnknown(reply.text);
    if (reply.text.starts_with("UNAVAILABLE")) throw Unavailable(reply.text);
    return redis::unless_error("calling", std::move(reply));
  }

  static std::string key_of(const Resource& resource) { return fmt::format("{{{}}}:log", resource.name()); }
  static std::optional<std::string> entry_of(const redis::Reply& reply) {
    return reply.is_nil() ? std::nullopt : std::optional{reply.text};
  }

  redis::Client client_;
};

// The table journal (position, resource, entry). A connection that broke is opened again by the next call.
class PostgresDoor : public Door {
 public:
  explicit PostgresDoor(const Url& url) : url_{url} {}

  Ruling advance(const Claim& claim) override { return postgres::Guard{open()}.advance(claim); }

  Ruling write(const Claim& claim, const std::string& entry) override {
    return postgres::Guard{open()}.write(claim, [&](pqxx::work& tx) { store(tx, claim.resource, entry); });
  }

  Read read(const Claim& claim) override {
    Read read;
    read.ruling =
        postgres::Guard{open()}.write(claim, [&](pqxx::work& tx) { read.entry = load(tx, claim.resource); });
    return read;
  }

  std::optional<std::string> look(const Resource& resource) override {
    std::optional<std::string> entry;
    run([&](pqxx::work& tx) { entry = load(tx, resource); });
    return entry;
  }

  void write_unguarded(const Resource& resource, const std::string& entry) override {
    run([&](pqxx::work& tx) { store(tx, resource, entry); });
  }

 private:
  pqxx::connection& open() {
    if (!connection_ || !connection_->is_open())
      connection_ = postgres::connect(postgres::address_of(url_, {"lock"}));
    return *connection_;
  }

  template <class Function>
  void run(Function&& function) {
    auto& connection = open();
    auto stage = postgres::Stage::before_commit;
    try {
      pqxx::work tx{connection};
      function(tx);
      stage = postgres::Stage::at_commit;
      tx.commit();
    } catch (...) {
      postgres::raise_current(stage, "using the journal");
    }
  }

  // Within a guarded write what libpqxx throws would pass through as it is.
  template <class Function>
  static auto certain(Function&& function) {
    try {
      return function();
    } catch (...) {
      postgres::raise_current(postgres::Stage::before_commit, "using the journal");
    }
  }

  static std::optional<std::string> load(pqxx::work& tx, const Resource& resource) {
    return certain([&]() -> std::optional<std::string> {
      const auto rows = postgres::exec_params(
          tx, "SELECT entry FROM journal WHERE resource = $1 ORDER BY position DESC LIMIT 1",
          resource.name());
      if (rows.empty()) return std::nullopt;
      return rows[0][0].as<std::string>();
    });
  }

  static void store(pqxx::work& tx, const Resource& resource, const std::string& entry) {
    certain([&] {
      postgres::exec_params(tx, "INSERT INTO journal (resource, entry) VALUES ($1, $2)", resource.name(),
                            entry);
    });
  }

  const Url url_;
  std::unique_ptr<pqxx::connection> connection_;
};

// The key campaign/RESOURCE, whose revisions are its log.
class EtcdDoor : public Door {
 public:
  explicit EtcdDoor(const Url& url) : client_{etcd::address_beside_source(url)} {}

  Ruling advance(const Claim& claim) override { return guard_.advance(claim); }

  Ruling write(const Claim& claim, const std::string& entry) override {
    return guard_.write(claim, {etcd::put(key_of(claim.resource), entry)}).ruling;
  }

  Read read(const Claim& claim) override {
    const auto read = guard_.read(claim, {etcd::get(key_of(claim.resource))});
    if (!read.is_done()) return {read.ruling};
    return {read.ruling, entry_of(read.answers.front())};
  }

  // Behind a write of its own: etcd 3.4 can answer a read alone from the past.
  std::optional<std::string> look(const Resource& resource) override {
    const auto done = client_.txn({{}, {etcd::put("campaign-looks", ""), etcd::get(key_of(resource))}, {}});
    return entry_of(done.answers.back());
  }

  void write_unguarded(const Resource& resource, const std::string& entry) override {
    (void)client_.txn({{}, {etcd::put(key_of(resource), entry)}, {}});
  }

 private:
  static std::string key_of(const Resource& resource) { return "campaign/" + resource.name(); }
  static std::optional<std::string> entry_of(const etcd::OpAnswer& answer) {
    if (answer.found.empty()) return std::nullopt;
    return answer.found.front().value;
  }

  etcd::Client client_;
  etcd::Guard guard_{client_};
};

// Under ROOT/campaign, which is there: for each resource the node last, and a sequential node for each entry.
class ZookeeperDoor : public Door {
 public:
  explicit ZookeeperDoor(const Url& url) : client_{zookeeper::address_beside_source(url)} {}

  Ruling advance(const Claim& claim) override { return guard_.advance(claim); }

  Ruling write(const Claim& claim, const std::string& entry) override {
    make_place(claim.resource);
    const auto written = guard_.write(claim, ops_of(claim.resource, entry));
    if (written.result && !written.took_effect()) throw Unavailable("the resource's nodes are not there");
    return written.ruling;
  }

  Read read(const Claim& claim) override {
    make_place(claim.resource);
    auto read = guard_.read(claim, place_of(claim.resource) + "/last");
    if (!read.answer || read.answer->code != zookeeper::Code::ok) return {read.ruling};
    return {read.ruling, entry_of(read.answer->data)};
  }

  // Behind a call that goes through the ensemble's log.
  std::optional<std::string> look(const Resource& resource) override {
    make_place(resource);
    const auto session = client_.connection().session;
    (void)zookeeper::certain(
        [&] { return session->multi({zookeeper::check(place_of(resource), zookeeper::any_version)}); });
    const auto answer = session->get(place_of(resource) + "/last");
    return answer.code == zookeeper::Code::ok ? entry_of(answer.data) : std::nullopt;
  }

  void write_unguarded(const Resource& resource, const std::string& entry) override {
    make_place(resource);
    if (!client_.connection().session->multi(ops_of(resource, entry)).is_ok())
      throw Unavailable("the resource's nodes are not there");
  }

 private:
  [[nodiscard]] std::string place_of(const Resource& resource) const {
    return fmt::format("{}/campaign/{}", client_.address().root, zookeeper::segment_of(resource));
  }

  void make_place(const Resource& resource) {
    if (made_ == resource.name()) return;
    const auto session = client_.connection().session;
    session->make_path(place_of(resource));
    (void)session->create(place_of(resource) + "/last", "");  // is there already, or is made
    made_ = resource.name();
  }

  [[nodiscard]] std::vector<zookeeper::Op> ops_of(const Resource& resource, const std::string& entry) const {
    return {zookeeper::set(place_of(resource) + "/last", entry),
            zookeeper::create(place_of(resource) + "/entry-", entry, zookeeper::Mode::persistent_sequential)};
  }

  static std::optional<std::string> entry_of(const std::string& data) {
    return data.empty() ? std::nullopt : std::optional{data};
  }

  zookeeper::Client client_;
  zookeeper::Guard guard_{client_};
  std::string made_;
};

}  // namespace

std::unique_ptr<Door> open_redis(const Url& url) {
  return std::make_unique<RedisDoor>(url);
}
std::unique_ptr<Door> open_postgres(const Url& url) {
  return std::make_unique<PostgresDoor>(url);
}
std::unique_ptr<Door> open_etcd(const Url& url) {
  return std::make_unique<EtcdDoor>(url);
}
std::unique_ptr<Door> open_zookeeper(const Url& url) {
  return std::make_unique<ZookeeperDoor>(url);
}

std::unique_ptr<Door> open_door(const std::string& url) {
  if (url.starts_with("http:") || url.starts_with("unix:")) return open_http(url);
  if (url.starts_with("sidecar:"))
    return std::make_unique<SidecarDoor>("redis:" + url.substr(url.find(':') + 1));
  if (url.starts_with("pgsidecar:")) return open_postgres_sidecar(url.substr(url.find(':') + 1));
  const auto parsed = Url::parse(url);
  if (parsed.scheme == "redis") return open_redis(parsed);
  if (parsed.scheme == "postgres") return open_postgres(parsed);
  if (parsed.scheme == "etcd") return open_etcd(parsed);
  if (parsed.scheme == "zookeeper") return open_zookeeper(parsed);
  if (parsed.scheme == "sqlite") return open_file(parsed);
  throw InvalidInput("the campaign has no door to " + parsed.scheme);
}

}  // namespace fenceguard::campaign
