#include "server/cli/target/open_target.hpp"

#include <fmt/format.h>

#include <fstream>
#include <thread>

#include "guard/claim_keys.hpp"
#include "guard/error.hpp"
#include "server/cli/terminal/output.hpp"
#include "server/products.hpp"

namespace fenceguard::cli {
namespace {

constexpr int grants_max = 5;
constexpr std::chrono::milliseconds open_again_for{1'000};
constexpr std::chrono::milliseconds open_again_pause{10};

std::string read_bearer(const std::string& path) {
  std::ifstream file{path};
  std::string line;
  if (!file || !std::getline(file, line)) {
    throw InvalidInput("--server-token-file: cannot read a token from '" + path + "'");
  }
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
  return line;
}

// Those of --claim-key, if it is given. Throws InvalidInput.
std::optional<ClaimKeys> open_keys(const Settings& settings) {
  if (!settings.is_given("claim-key")) return std::nullopt;
  if (settings.is_given("server")) {
    throw InvalidInput("--claim-key is for --source and --storage: a guard that runs signs by itself");
  }
  return ClaimKeys::from_file(settings.text("claim-key"), settings.text("claim-space"));
}

bool may_create(const Settings& settings) {
  return settings.has(init_setting.name) && settings.is_on(init_setting.name);
}

// The guard, open only for as long as an advance takes, because meanwhile no other can be. Another client
// that is advancing is soon done; a server that runs is not.
std::unique_ptr<LocalFences> open_guard(const Url& storage, const StorageOptions& options) {
  for (const auto give_up_at = BootClock::now() + std::chrono::nanoseconds{open_again_for};;) {
    try {
      return std::make_unique<LocalFences>(products().open_storage(storage, options), nullptr);
    } catch (const Unavailable& error) {
      if (BootClock::now() >= give_up_at) {
        throw Unavailable(fmt::format("{} (a guard that is running is reached by --server)", error.what()));
      }
    }
    std::this_thread::sleep_for(open_again_pause);
  }
}

// Extends the lease if the guard took its time, so that what is handed out has most of its term before it.
// False: lost.
bool refresh(TokenSource& source, Grant& grant) {
  const auto now = BootClock::now();
  if (now - grant.asked_at < grant.ttl / 4) return true;
  grant.asked_at = now;
  return source.renew(grant.claim, grant.ttl) == Renewal::renewed;
}

// Lifts the source above what the guard has seen, if the lock is still ours, and gives the lock back.
void lift(TokenSource& source, const Grant& grant, std::int64_t highest) {
  if (source.renew(grant.claim, grant.ttl) == Renewal::renewed) source.lift(grant.claim, highest);
  source.release(grant.claim);
}

// False if the lease may still be there.
bool give_back(TokenSource& source, const Claim& claim) {
  try {
    source.release(claim);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// What call() answers; where it fails a new grant is given back. One that the holder had before stays, and
// the answer of that ask may have been lost: 'nothing happened' would be wrong.
auto or_give_back(TokenSource& source, const Grant& grant, const auto& call) {
  try {
    return call();
  } catch (const Error& error) {
    if (grant.is_new && !give_back(source, grant.claim))
      throw OutcomeUnknown(fmt::format("{}; and the lease could not be given back", error.what()));
    if (!grant.is_new && error.kind() == FaultKind::unavailable)
      throw OutcomeUnknown(fmt::format("{}; the lease of an earlier ask may stand", error.what()));
    throw;
  }
}

// Who is to be cut off behind an advance: the holder that was overtaken, where it is another one and has not
// finished; 0: nobody. A fence that was closed otherwise, by a revoke, says nothing of whether its holder is
// over.
std::int64_t owed_cut(const Ruling& ruling, const Claim& claim) {
  const auto& overtaken = ruling.overtaken;
  const bool is_other = overtaken && overtaken->token < claim.token &&
                        (overtaken->holder != claim.holder || claim.holder.id().empty());
  const bool is_owed = ruling.verdict == Verdict::admitted && is_other && !overtaken->finished;
  return is_owed ? overtaken->token.value() : 0;
}

// Advances the guard of --storage, if there is one, and gives the lock back if that fails. overtaken: see
// Taken.
Ruling advance_or_release(const Settings& settings, TokenSource& source, const Grant& grant,
                          std::int64_t& overtaken) {
  const auto storage = settings.url("storage");
  if (!storage) {
    Ruling unjudged;
    unjudged.verdict = Verdict::admitted;
    return unjudged;
  }
  const bool is_cutting = settings.has("fence-method") && settings.is_given("fence-method");
  return or_give_back(source, grant, [&] {
    auto ruling = open_guard(*storage, {.initialise = !settings.is_given("source")})->advance(grant.claim);
    if (is_cutting) overtaken = std::max(overtaken, owed_cut(ruling, grant.claim));
    return ruling;
  });
}

}  // namespace

FenceListing listing_of(const Settings& settings) {
  const auto limit = settings.number("limit");
  if (limit < 1 || limit > 1000) throw InvalidInput("--limit: 1 to 1000");
  return {settings.text("prefix"), settings.text("after"), static_cast<std::size_t>(limit)};
}

void require_one_way(const Settings& settings) {
  const bool is_local = settings.is_given("source") || settings.is_given("storage");
  if (settings.is_given("server") && is_local) {
    throw InvalidInput("--server names a running guard with its own source and storage; give it alone");
  }
  if (!settings.is_given("server") && !is_local) {
    throw InvalidInput("give --server for a running guard, or --source or --storage");
  }
}

std::string given_signature(const Settings& settings) {
  return settings.has("signature") ? settings.text("signature") : std::string{};
}

ControlClient open_server(const Settings& settings) {
  const auto server = settings.url("server").value();
  if (!server.user.empty() || !server.password.empty()) {
    throw InvalidInput("--server: there is no user in it; a bearer token comes in FENCEGUARD_SERVER_TOKEN");
  }
  auto bearer = settings.text("server-token");
  if (settings.is_given("server-token-file")) bearer = read_bearer(settings.text("server-token-file"));
  return ControlClient{settings.text("server"), std::move(bearer)};
}

std::unique_ptr<TokenSource> open_source(const Settings& settings) {
  if (settings.is_given("server")) {
    return std::make_unique<RemoteSource>(open_server(settings), given_signature(settings));
  }
  const auto source = settings.url(settings.is_given("source") ? "source" : "storage");
  // Wrong usage is told before what is not there.
  if (const auto storage = settings.url("storage")) static_cast<void>(products().find(*storage));
  if (!may_create(settings)) products().require_present(source.value());
  return products().open_source(source.value());
}

Taken take(const Settings& settings, TokenSource& source, const AcquireOptions& options) {
  require_sensible_ttl(options.ttl);
  const auto keys = open_keys(settings);
  if (const auto storage = settings.url("storage")) {
    if (!may_create(settings)) products().require_present(*storage);
  } else if (!settings.is_given("server")) {
    complain(
        "no guard was advanced: an older holder's delayed write may still land; see --storage and --server");
  }
  Taken taken;
  const auto holder = options.holder.value_or(Holder::random());
  for (int grants = 0; grants < grants_max; ++grants) {
    auto grant = source.wait_acquire(settings.resource(), holder, options);
    if (!grant) return {};
    const auto ruling = advance_or_release(settings, source, *grant, taken.overtaken);
    if (ruling.verdict != Verdict::admitted) {
      taken.refusal = ruling.verdict;
      if (!grant->is_new)
        return taken;  // not fresh: the refusal is the truth, and no reason to lift the source
      or_give_back(source, *grant, [&] { lift(source, *grant, ruling.highest); });
    } else if (or_give_back(source, *grant, [&] { return refresh(source, *grant); })) {
      auto signature = keys ? keys->sign(grant->claim) : std::string{};
      if (const auto* remote = dynamic_cast<const RemoteSource*>(&source)) {
        signature = remote->signature_of(grant->claim);
      }
      return {.grant = std::move(grant),
              .refusal = {},
              .signature = std::move(signature),
              .overtaken = taken.overtaken};
    }
  }
  return taken;
}

std::string describe_loss(const Settings& settings, const Lease& lease) {
  const auto loss = lease.loss().value_or(Loss{});
  switch (loss.kind) {
    case Loss::Kind::expired:
      return "it expired before it could be renewed, because this process or its machine stood still";
    case Loss::Kind::unreachable:
      return fmt::format("it could not be renewed in time, because its source is unreachable: {}",
                         loss.detail);
    case Loss::Kind::ended:
      break;
  }
  try {
    if (settings.is_given("server") && RemoteFences{open_server(settings)}.is_revoked(lease.claim()))
      return "it was revoked";
  } catch (const Error&) {
    // Then that is not known.
  }
  return "its source says that it is over: it expired there, was released, or was ended";
}

}  // namespace fenceguard::cli
