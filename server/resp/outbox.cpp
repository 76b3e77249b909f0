#include "server/resp/outbox.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <utility>

#include "server/resp/wire/reply.hpp"

namespace fenceguard::resp {
namespace {

constexpr std::size_t kept_bytes_max = 4 * 1024;

}  // namespace

bool Outbox::flush(std::shared_ptr<void> owner) {
  if (is_sending_ || waiting_.empty() || connection_.is_cut()) return true;
  std::string_view head = waiting_, body;
  if (!connection_.send_now(head, body)) return false;
  if (head.empty()) {
    waiting_.clear();
    if (waiting_.capacity() > kept_bytes_max) free_memory(waiting_);
    return true;
  }
  sending_.assign(head);
  waiting_.clear();
  is_sending_ = true;
  boost::asio::co_spawn(connection_.loop().context(), send_rest(std::move(owner)), boost::asio::detached);
  return true;
}

net::Task<void> Outbox::send_rest(std::shared_ptr<void> owner) {
  const auto kept = std::move(owner);
  bool is_broken = false;
  while (!sending_.empty() && !connection_.is_cut() && !is_broken) {
    is_broken = bool{co_await connection_.transport().write_all(sending_, {})};
    if (is_broken) break;
    sending_.clear();
    std::swap(sending_, waiting_);
  }
  free_memory(sending_);
  is_sending_ = false;
  sent_(is_broken);
}

}  // namespace fenceguard::resp
