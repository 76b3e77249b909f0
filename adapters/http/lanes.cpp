#include "adapters/http/lanes.hpp"

#include "adapters/http/lane_desk.hpp"
#include "adapters/http/lane_fences.hpp"

namespace fenceguard::proxy {

class Lanes::Impl {
 public:
  Impl(const LaneOptions& options, std::int64_t jump_max, std::size_t cache_entries)
      : desk{options, jump_max, cache_entries}, fences{desk, options.state->fences()} {}

  LaneDesk desk;
  LaneFences fences;
};

Lanes::Lanes(const LaneOptions& options, std::int64_t jump_max, std::size_t cache_entries)
    : impl_{std::make_unique<Impl>(options, jump_max, cache_entries)} {}

Lanes::~Lanes() = default;

Ticket Lanes::new_ticket() noexcept {
  return impl_->desk.new_ticket();
}

std::optional<Entry> Lanes::enter(Ask ask, std::function<void(Entry)> entered) {
  return impl_->desk.enter(std::move(ask), std::move(entered));
}

std::optional<Left> Lanes::leave(Ticket ticket, Ending ending, std::function<void(Left)> left) noexcept {
  return impl_->desk.leave(ticket, ending, std::move(left));
}

Ruling Lanes::judge_read(Ticket ticket) const {
  return impl_->desk.judge_read(ticket);
}

void Lanes::end_read(Ticket ticket) noexcept {
  impl_->desk.end_read(ticket);
}

bool Lanes::withdraw(Ticket ticket) noexcept {
  return impl_->desk.withdraw(ticket);
}

bool Lanes::is_overtaken(const Resource& resource, Token token) const {
  return impl_->desk.is_overtaken(resource, token);
}

std::optional<Fault> Lanes::quarantine(std::string_view name) const {
  return impl_->desk.quarantine(name);
}

LaneTable::Figures Lanes::figures() const {
  return impl_->desk.figures();
}

FenceStore& Lanes::fences() noexcept {
  return impl_->fences;
}

}  // namespace fenceguard::proxy
