//go:build !linux

package fenceguard

import "time"

var began = time.Now()

// now is a time that may stand still while the machine sleeps.
func now() time.Duration { return time.Since(began) }
