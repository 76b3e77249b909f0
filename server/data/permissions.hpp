#pragma once

// Permissions: what an operator lets the clients of a data side do that speaks a storage's own protocol.
// Values.

namespace fenceguard {

// Without a claim to what a command names.
enum class Unfenced {
  read,    // a client may read
  refuse,  // it may do nothing with it
  allow,   // it may do everything, as if there were no guard
};

struct Permissions {
  Unfenced unfenced = Unfenced::read;
  bool admin = false;    // what is for administrators
  bool scripts = false;  // scripts of its own, which could write what they do not declare
};

}  // namespace fenceguard
