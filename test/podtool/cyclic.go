package main

import (
	"fmt"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// cyclic sleeps n times until an absolute time, every apart, and prints by how much the longest sleep was late, and the scheduling
// policy and priority of the thread. With a priority, it selects FIFO itself, for which it must be privileged.
func cyclic(every, n, priority string) error {
	runtime.LockOSThread()
	period, err := time.ParseDuration(every)
	if err != nil {
		return err
	}
	cycles, err := strconv.Atoi(n)
	if err != nil {
		return err
	}
	if priority != "" {
		p, err := strconv.ParseUint(priority, 10, 32)
		if err != nil {
			return err
		}
		fifo := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: uint32(p)}
		if err := unix.SchedSetAttr(0, fifo, 0); err != nil {
			return err
		}
	}
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return err
	}
	if err := unix.Mlockall(unix.MCL_CURRENT); err != nil {
		fmt.Println("memory is not locked:", err)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return err
	}
	next, late := now.Nano(), time.Duration(0)
	for range cycles {
		next += int64(period)
		at := unix.NsecToTimespec(next)
		for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &at, nil) == unix.EINTR {
		}
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			return err
		}
		late = max(late, time.Duration(now.Nano()-next))
	}
	fmt.Printf("cyclic: policy=%d priority=%d cycles=%d max=%dus\n", attr.Policy, attr.Priority, cycles, late.Microseconds())
	return nil
}
