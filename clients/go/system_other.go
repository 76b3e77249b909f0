//go:build !linux

package fenceguard

import (
	"errors"
	"net"
	"os"
	"time"
)

var began = time.Now()

// now is a time that may stand still while the machine sleeps.
func now() time.Duration { return time.Since(began) }

// isQuiet is true while the server has neither closed an idle connection nor said anything. What it says is lost, and
// the connection with it.
func isQuiet(connection net.Conn) bool {
	connection.SetReadDeadline(time.Now().Add(time.Millisecond))
	defer connection.SetReadDeadline(time.Time{})
	_, err := connection.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}
