#include "demo/clients/account_cli.hpp"

#include <chrono>

#include "guard/support/clock.hpp"

namespace fenceguard::demo {
namespace {

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(BootClock::now().time_since_epoch()).count();
}

}  // namespace

void AccountCli::send(const boost::json::object& request) {
  began_us_ = now_us();
  is_asked_ = true;
  ask(request);
}

void AccountCli::resume() {
  // What lay ready begins now.
  began_us_ = now_us();
  process_->resume();
}

boost::json::object AccountCli::receive() {
  is_asked_ = false;
  auto reply = answer();
  reply.insert({{"began_us", began_us_}, {"ended_us", now_us()}});
  return reply;
}

}  // namespace fenceguard::demo
