#pragma once

// Shared: what the sessions of one data side work with.
//
// Thread-safe: but for 'first' it is not changed once it is made.

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "server/data/data_service.hpp"
#include "server/net/address.hpp"
#include "server/net/tls/tls.hpp"
#include "server/postgres/relay/relay.hpp"

namespace fenceguard::pgwire {

// One of the servers that the URL names.
struct Host {
  net::Address address{};
  std::shared_ptr<const net::TlsContext> tls{};  // null: in the clear
};

// What an operator sets.
struct PostgresOptions {
  RelayOptions relay{};
  std::vector<Host> hosts{};  // at least one
  std::chrono::milliseconds connect_timeout{10'000};
};

struct Shared {
  Shared(const ServiceContext& context_of_service, PostgresOptions options_of_service)
      : context{context_of_service}, options{std::move(options_of_service)} {}

  const ServiceContext context;
  const PostgresOptions options;
  std::atomic<std::size_t> first{0};  // of the hosts, the one that is tried first
};

}  // namespace fenceguard::pgwire
