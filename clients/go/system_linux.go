package fenceguard

import (
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
