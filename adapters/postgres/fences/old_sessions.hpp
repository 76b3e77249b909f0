#pragma once

// Sessions of old holders, for a take-over: which they are is told by the name that they have at the server
// (application_name), and by the fence's lock in an open transaction.
//
// Thread-safe: every call makes a connection of its own.

#include <chrono>
#include <string>

#include "guard/claim.hpp"
#include "guard/source/url.hpp"

namespace fenceguard::postgres {

// What a session under the claim is called, in PGAPPNAME: the token, and a digest of the resource. A session
// that names itself otherwise is found in a transaction under its claim alone.
[[nodiscard]] std::string session_name(const Claim& claim);

// Ends the sessions of the resource under old_token or a lower one, and waits until they are gone; answers
// how many were asked to end. Throws Unavailable where one is still there after limit, may not be ended by
// this user (pg_signal_backend), or may be one although it does not say so: any other session of this
// database that is neither ours nor named as above, and any prepared transaction.
int terminate_backends(const Url& url, const Resource& resource, Token old_token,
                       std::chrono::milliseconds limit);

// Ends all sessions of a role that holders of one resource have to themselves, in whatever database: by the
// role that logged in, which neither SET ROLE nor SET SESSION AUTHORIZATION nor a function changes. Answers
// and throws likewise; also where transactions are prepared that may be the role's.
int terminate_role(const Url& url, const std::string& role, const Resource& resource,
                   std::chrono::milliseconds limit);

// The claim's holder gives it back, and writes no more: closes the fence, and ends its lease where that is of
// this database, unless they are another's by now.
void finish_holder(const Url& url, const Claim& claim);

}  // namespace fenceguard::postgres
