#include "server/resp/resp_service.hpp"

#include "guard/error.hpp"
#include "server/net/address.hpp"
#include "server/net/loop.hpp"
#include "server/resp/session.hpp"

namespace fenceguard::resp {
namespace {

constexpr std::chrono::milliseconds drop_max{1'000};

}  // namespace

RespService::RespService(const ServiceContext& context, RespOptions options)
    : shared_{std::make_shared<Shared>(context, std::move(options))}, server_{context.threads} {}

RespService::~RespService() {
  drain(std::chrono::milliseconds{0});
}

std::string RespService::listen(const std::string& text) {
  const auto address = net::Address::parse(text);
  const auto& relay = shared_->options.relay;
  if (relay.lends_identity && relay.data_password.empty() && !net::is_loopback(text))
    throw InvalidInput(
        "the storage's URL has a password, which every client would be lent: without --data-password-file "
        "the "
        "data side listens on loopback or a Unix socket only, not on " +
        text);
  return server_.listen(address,
                        std::make_shared<net::SharedService<Session, Shared>>(shared_, server_.counter()));
}

bool RespService::drain(std::chrono::milliseconds timeout) {
  const bool is_clean = server_.drain(timeout);
  // Before their loops are gone, and on their threads.
  for (auto* loop : server_.loops()) loop->post([shared = shared_, loop] { shared->drop_upstreams(*loop); });
  (void)server_.answers(drop_max);
  return is_clean;
}

bool RespService::answers(std::chrono::milliseconds limit) {
  return server_.answers(limit);
}

std::int64_t RespService::in_flight() const noexcept {
  return server_.in_flight();
}

}  // namespace fenceguard::resp
