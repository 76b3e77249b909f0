#pragma once

// Sessions of old holders, for a take-over. A MariaDB session has no name that the environment of a command
// sets, and the server tells of it the account alone: so they are those of an account that holders of one
// resource have to themselves. The account is that which logged in, whatever a statement runs as.
//
// Thread-safe: every call makes a connection of its own.

#include <chrono>
#include <string>

#include "guard/claim.hpp"
#include "guard/source/url.hpp"

namespace fenceguard::mariadb {

// Ends all sessions of the account (a user, from whatever host), and waits until they are gone; answers how
// many there were. Throws Unavailable where one is still there after limit, or may be: a session is within a
// statement and does not tell its account, a transaction is prepared (XA), or the account has events. Also
// where this user may not see them (PROCESS) or end them (CONNECTION ADMIN).
int end_sessions(const Url& url, const std::string& user, std::chrono::milliseconds limit);

// The claim's holder gives it back, and writes no more: closes the fence unless it is another's by now.
void finish_holder(const Url& url, const Claim& claim);

}  // namespace fenceguard::mariadb
