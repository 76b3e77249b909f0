#include "server/proxy/upstream/upstream_pool.hpp"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <iterator>

#include "server/net/client/connect.hpp"

namespace fenceguard::proxy {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t idle_connections_max = 1'024;
// A server that closes an idle connection may do so while a request is on its way, and that request's outcome
// is then unknown. So we part well before it would.
constexpr milliseconds parting_ahead{2'000};
constexpr milliseconds idle_max_unless_told{4'000};
constexpr milliseconds idle_max_in_any_case{60'000};
constexpr milliseconds sweep_apart_min{10};
constexpr milliseconds user_timeout_min{100};

}  // namespace

UpstreamConnection::UpstreamConnection(UpstreamPool& pool, net::Transport transport)
    : pool_{pool}, transport_{std::move(transport)} {
  pool_.add(*this);
}

UpstreamConnection::~UpstreamConnection() {
  pool_.remove(*this);
  if (transport_.is_open() && !has_unsent()) transport_.part_in_order();
}

bool UpstreamConnection::lend(User& user) noexcept {
  user_ = &user;
  return transport_.is_detached() || transport_.detach(pool_.loop().poller(), *this);
}

void UpstreamConnection::ready(bool /*has_ended*/) noexcept {
  // What comes while it is idle take() finds.
  if (user_ != nullptr) user_->upstream_ready();
}

bool UpstreamConnection::has_unsent() noexcept {
  int bytes = 0;
  return ::ioctl(transport_.descriptor(), SIOCOUTQ, &bytes) != 0 || bytes > 0;
}

void UpstreamConnection::look_at_segments() noexcept {
  int bytes = 0;
  socklen_t size = sizeof bytes;
  // Under TLS there is more to send than was given.
  if (transport_.is_tls()) return;
  if (::getsockopt(transport_.socket().native_handle(), IPPROTO_TCP, TCP_MAXSEG, &bytes, &size) == 0)
    segment_bytes_ = static_cast<std::size_t>(bytes);
}

void UpstreamConnection::set_deadline(net::SteadyTime deadline) {
  deadline_ = std::min(deadline, pool_.last_moment());
  pool_.arm(deadline_);
}

void UpstreamConnection::expire() noexcept {
  deadline_ = net::SteadyTime::max();
  is_late_ = true;
  transport_.reset();
  if (user_ != nullptr) user_->upstream_late();
}

UpstreamPool::UpstreamPool(const UpstreamOptions& options, std::shared_ptr<net::Loop> loop)
    : options_{options},
      loop_{std::move(loop)},
      alarm_{loop_->context(), sweep_apart_min, [this](net::SteadyTime now) { return sweep(now); }} {}

UpstreamPool::~UpstreamPool() = default;

std::unique_ptr<UpstreamConnection> UpstreamPool::take() {
  const auto now = std::chrono::steady_clock::now();
  for (;;) {
    const auto rested_end = std::partition_point(idle_.begin(), idle_.end(), [&](const auto& connection) {
      return now - connection->idle_since() >= rest_min;
    });
    if (rested_end == idle_.begin()) return nullptr;
    const auto latest = std::prev(rested_end);
    auto connection = std::move(*latest);
    idle_.erase(latest);
    const bool is_fit = connection->deadline() > now && connection->transport().is_quiet();
    connection->clear_deadline();
    if (is_fit) return connection;
  }
}

std::unique_ptr<UpstreamConnection> UpstreamPool::open(const net::Endpoint& endpoint) {
  net::Socket socket{loop_->context()};
  const net::SocketOptions options{
      .resets = true, .unacknowledged_max = std::max(options_.settle / 2, user_timeout_min), .probes = false};
  if (net::open_socket(socket, endpoint, options)) return nullptr;
  auto transport =
      options_.tls ? net::Transport{std::move(socket), options_.tls} : net::Transport{std::move(socket)};
  return std::make_unique<UpstreamConnection>(*this, std::move(transport));
}

net::Task<std::unique_ptr<UpstreamConnection>> UpstreamPool::connect(net::SteadyTime deadline) {
  for (const auto& endpoint : options_.endpoints) {
    auto connection = open(endpoint);
    if (!connection) continue;
    connection->set_deadline(deadline);
    const auto [error] = co_await connection->transport().socket().async_connect(endpoint, net::as_result);
    auto outcome = error;
    if (!outcome && !connection->is_late() && options_.tls) {
      outcome = co_await connection->transport().handshake();
    }
    if (connection->is_late()) break;
    if (outcome) continue;
    connection->clear_deadline();
    connection->look_at_segments();
    co_return connection;
  }
  co_return nullptr;
}

void UpstreamPool::keep(std::unique_ptr<UpstreamConnection> connection,
                        std::optional<std::chrono::seconds> idle_max) {
  auto period = idle_max_unless_told;
  if (idle_max)
    period = std::min<milliseconds>(milliseconds{*idle_max} - parting_ahead, idle_max_in_any_case);
  if (period <= milliseconds{0} || loop_->is_draining()) return;
  if (idle_.size() >= idle_connections_max) idle_.pop_front();
  const auto now = std::chrono::steady_clock::now();
  connection->begin_idle(now);
  connection->set_deadline(now + period);
  idle_.push_back(std::move(connection));
}

void UpstreamPool::cut_at(net::SteadyTime moment) {
  loop_->post([this, moment] {
    cut_at_ = moment;
    arm(moment);
  });
}

void UpstreamPool::reset_writes(std::string_view resource, std::int64_t token_max) noexcept {
  const auto is_older = [&](const Claim& claim) {
    return claim.resource.name() == resource && claim.token.value() <= token_max;
  };
  for (auto* connection : connections_) {
    if (std::ranges::any_of(connection->writes(), is_older) && !connection->is_late()) connection->expire();
  }
}

void UpstreamPool::add(UpstreamConnection& connection) {
  connections_.push_back(&connection);
  connection.place_in_pool = connections_.size() - 1;
}

void UpstreamPool::remove(UpstreamConnection& connection) noexcept {
  connections_.back()->place_in_pool = connection.place_in_pool;
  std::swap(connections_[connection.place_in_pool], connections_.back());
  connections_.pop_back();
}

net::SteadyTime UpstreamPool::sweep(net::SteadyTime now) {
  std::erase_if(idle_, [&](const auto& connection) { return connection->deadline() <= now; });
  const bool is_cut = cut_at_ <= now;
  auto earliest = is_cut ? net::SteadyTime::max() : cut_at_;
  for (auto* connection : connections_) {
    if (is_cut || connection->deadline() <= now) connection->expire();
    earliest = std::min(earliest, connection->deadline());
  }
  return earliest;
}

}  // namespace fenceguard::proxy
