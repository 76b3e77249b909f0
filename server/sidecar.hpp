#pragma once

// Sidecar: a running guard. Puts together a storage, a token source, the data side, the control side and the
// probe, serves until it is told to stop, and then drains. What 'fenceguard serve' runs; tests and the
// demonstration can run one in their own process too.
//
// Thread safety: all public calls may be made from any thread.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "guard/resource.hpp"
#include "guard/store/storage.hpp"
#include "guard/token_source.hpp"
#include "server/data/permissions.hpp"
#include "server/http/limits.hpp"
#include "server/net/tls/tls.hpp"

namespace fenceguard {

class Fencer;
class TenureProgram;

struct SidecarOptions {
  std::string listen = "127.0.0.1:7420";  // empty: no data side
  std::string control = "127.0.0.1:7421";
  std::string probe;  // empty: none
  std::string
      control_token_file;  // empty: no bearer tokens; the control side then binds to loopback or Unix only
  std::vector<std::string> control_hosts;  // further host names by which the control side may be called
  // Likewise of the data side. None, and it listens on loopback: by its address and loopback's names; and
  // elsewhere: by any.
  std::vector<std::string> data_hosts;
  std::string storage_scheme;  // the label of the metrics: 'sqlite'
  std::string storage_name;    // what /v1/status tells: URLs without their passwords
  std::string source_name;
  // The first N segments of a path are the resource; 0: all of them. On the control side too, with or without
  // a data side.
  std::size_t resource_depth = 0;
  unsigned threads = 1;
  std::chrono::milliseconds drain_timeout{10'000};
  std::chrono::milliseconds source_wait{2'000};  // of a revoke, for each of its two calls
  http::Limits data_limits;
  Permissions
      permissions{};  // of a data side that speaks a storage's own protocol, and the password that its
  std::string data_password;               // clients say; empty: none
  net::TlsServerFiles tls;                 // of the data side; empty: in the clear
  std::string claim_key_file;              // signs the leases that are granted here; empty: they are unsigned
  std::string claim_space = "fenceguard";  // the namespace that is signed
  bool require_signature = false;          // refuse claims that are not signed. REQUIRES: claim_key_file
  // Held for all clients of the data side, by leases of so long; none: they bring their claims. REQUIRES: the
  // data side is PostgreSQL's or Redis's.
  std::vector<Resource> hold{};
  std::chrono::milliseconds hold_ttl{10'000};
  bool hold_takes_any_program = false;  // also one that may have begun before the lease was taken
  std::shared_ptr<TenureProgram>
      hold_for{};  // the one program whose connections are let in; null: any newer one
  // Cuts old holders off, where the storage is behind lanes; null: they are only refused. REQUIRES: it
  // outlives the storage.
  std::shared_ptr<Fencer> fencer{};
};

class Sidecar {
 public:
  // Binds and serves. storage and source (which may be null: then lease calls are 501) must outlive the
  // sidecar. Throws InvalidInput or Unavailable with a sentence that says what to do.
  Sidecar(Storage& storage, TokenSource* source, SidecarOptions options);
  // Stops as by stop() if that was not done.
  ~Sidecar();
  Sidecar(const Sidecar&) = delete;
  Sidecar& operator=(const Sidecar&) = delete;

  // The addresses as bound; empty where there is no data side.
  [[nodiscard]] const std::string& data_address() const noexcept;
  [[nodiscard]] const std::string& control_address() const noexcept;
  // Empty where there is none.
  [[nodiscard]] const std::string& probe_address() const noexcept;

  // Reads the token file again; the old tokens stay if it cannot be read or is malformed. Throws InvalidInput
  // then. False: there is none.
  bool reload_tokens();
  // Likewise the keys of signed claims.
  bool reload_keys();
  // Likewise the files of TLS, for connections that are made from then on: those of the data side, and those
  // towards the storage.
  bool reload_certificates();
  bool reload_upstream_certificates();

  // Whether each event loop, of the data side, the control side and the leases, answers within limit. Blocks
  // until then.
  [[nodiscard]] bool answers(std::chrono::milliseconds limit);

  // Not ready from now on; drains within the drain timeout; blocks until done. True if nothing had to be cut.
  bool stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fenceguard
