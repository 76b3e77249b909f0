package fenceguard

import (
	"net"
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7 // CLOCK_BOOTTIME

// now is a time that goes on while the machine sleeps.
func now() time.Duration {
	var t syscall.Timespec
	_, _, fault := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&t)), 0)
	if fault != 0 {
		panic(fault)
	}
	return time.Duration(t.Nano())
}

// isQuiet is true while the server has neither closed an idle connection nor said anything.
func isQuiet(connection net.Conn) bool {
	raw, err := connection.(syscall.Conn).SyscallConn()
	if err != nil {
		return false
	}
	var seen error
	err = raw.Read(func(descriptor uintptr) bool {
		_, _, seen = syscall.Recvfrom(int(descriptor), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return true
	})
	return err == nil && seen == syscall.EAGAIN
}
