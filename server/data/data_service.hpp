#pragma once

// DataService: what a storage that speaks a protocol of its own serves under --listen. The sidecar starts it,
// tells it to drain, and lends it what all data sides share: metrics, the log of refusals, limits.
//
// Thread safety: all calls may be made from any thread.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "guard/error.hpp"
#include "guard/store/fence_store.hpp"
#include "server/control/host_check.hpp"
#include "server/control/metrics.hpp"
#include "server/control/refusal_log.hpp"
#include "server/data/permissions.hpp"
#include "server/http/limits.hpp"
#include "server/net/tls/tls.hpp"

namespace fenceguard {

class ClaimKeys;
class HolderFencer;
class LeaseHolder;

// What a data side works with. metrics, log, keys, hosts and holder outlive it.
struct ServiceContext {
  Metrics& metrics;
  RefusalLog& log;
  const ClaimKeys* keys =
      nullptr;  // claims must be signed with one of these; null: no signature is asked for
  std::shared_ptr<const net::TlsContext> tls = nullptr;  // null: in the clear
  std::size_t resource_depth = 0;  // the first N segments of a path are the resource; 0: all of them
  unsigned threads = 1;
  http::Limits limits;
  const HostCheck* hosts = nullptr;  // by which names it may be called; null: by any
  bool has_fast_path = true;         // false: to compare, every request is served by a coroutine
  // Of a storage that speaks a protocol of its own:
  Permissions permissions{};
  std::string password{};               // that its clients must know; empty: none
  const LeaseHolder* holder = nullptr;  // holds the claims of all its clients; null: they bring their own
};

class DataService {
 public:
  virtual ~DataService() = default;

  // Binds and serves; the address as bound. Throws as net::Server::listen.
  virtual std::string listen(const std::string& address) = 0;

  // Lets what was begun end, and cuts the rest after timeout. True if nothing had to be cut. Blocks until
  // then; calls to the storage are over when it returns.
  virtual bool drain(std::chrono::milliseconds timeout) = 0;

  // What the holder held was lost: the clients that began under it end. Does not block.
  virtual void end_held() {}

  // Reads the files of TLS towards the storage again; on InvalidInput the old ones stay. False: there are
  // none.
  virtual bool reload_upstream_certificates() { return false; }

  // Resets the connections to the storage on which a write on the resource, under this token or a lower one,
  // is not answered. Blocks, for limit at most. False: not all of them within it.
  virtual bool reset_writes(std::string_view /*resource*/, std::int64_t /*token_max*/,
                            std::chrono::milliseconds /*limit*/) {
    return false;
  }

  // As net::Server.
  [[nodiscard]] virtual bool answers(std::chrono::milliseconds limit) = 0;

  // Requests that are not answered.
  [[nodiscard]] virtual std::int64_t in_flight() const noexcept = 0;

  // What the storage's lanes hold at this moment, for the metrics.
  struct LaneFigures {
    std::int64_t waiting = 0;          // claims that wait for older writes
    std::int64_t in_flight = 0;        // writes that were forwarded and are not over
    std::int64_t closed = 0;           // resources closed by an outcome that is not known
    std::int64_t settle_closures = 0;  // how often one was, since the start
    std::int64_t cuts_owed = 0;        // resources that wait until old holders are cut off
  };
  [[nodiscard]] virtual LaneFigures lanes() const { return {}; }

  struct LaneView {
    std::string resource;
    std::int64_t waiting = 0, in_flight = 0;
    std::chrono::milliseconds quarantined{};  // for so long; 0: it is open
  };
  struct LanePage {
    std::vector<LaneView> entries;  // sorted by resource, bytewise
    bool has_more = false;          // ask again after the last entry's resource
  };
  enum class Lanes { all, quarantined };
  // The lanes in which something is in flight, waits or is quarantined. What quarantines every resource is
  // not told of each.
  [[nodiscard]] virtual LanePage list_lanes(const FenceListing& /*listing*/, Lanes /*which*/) const {
    return {};
  }

  // Why no write on this resource is admitted for now, and how long; nothing where none is kept out. Of no
  // name: whether that is so of every resource.
  [[nodiscard]] virtual std::optional<Fault> quarantine(std::string_view /*resource*/) const { return {}; }
};

// A storage that serves the data side in a protocol of its own: what the server adds to Storage.
class ServedStorage {
 public:
  virtual ~ServedStorage() = default;
  // REQUIRES: called once; the storage outlives the service.
  [[nodiscard]] virtual std::shared_ptr<DataService> data_service(const ServiceContext& context) = 0;

  // Old holders are cut off by it from now on: see LaneScheduler. REQUIRES: called once at most, before the
  // first claim; the fencer outlives the storage. Throws InvalidInput where that cannot be done here.
  virtual void cut_off_by(HolderFencer& /*fencer*/) {
    throw InvalidInput("--fence-method: this storage checks every write itself");
  }
  // None is: what an earlier guard owes is forgotten. REQUIRES: likewise. Throws Unavailable or
  // OutcomeUnknown.
  virtual void cut_off_none() {}
  // The claim's holder gives it back, and writes no more. Answers on any thread.
  virtual void finish(Claim /*claim*/, Done<bool> done) { done(true); }
};

}  // namespace fenceguard
