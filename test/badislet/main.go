// Command badislet is a version of islet that is no good. How is said by its last line, which a
// test appends: the version, and one of these with what it needs. Those that begin with "test"
// fail in the self-test, the others pass it and fail as an agent.
//
//	crash          panics at once
//	exit CODE      ends at once
//	signal NUMBER  kills itself
//	stop           stops itself, as a process does that is debugged
//	later MS       ends after so many milliseconds
//	hang           does nothing
//	deaf           does nothing, nor does it end when it is asked to
//	closes         closes what it would report by, as daemons do, and then does nothing
//	eat MIB        takes that much memory, little by little, and then does nothing
//	spin           keeps every processor busy
//	flood MIB      writes that much to its log, and then does nothing
//	children N     starts so many processes that outlive it, and ends
//	network FILE   works as that program, in a network of its own that leads nowhere
//	blind FILE     works as that program, but finds no manifests
//	testcrash, testexit CODE, testhang, testeat, testflood
//	testother      says that another version passed
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// child is what a process that this one leaves behind is called by.
const child = "child"

func main() {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	words := strings.Fields(string(self[bytes.LastIndexByte(self, '\n')+1:]))
	version, how, what := words[0], words[1], ""
	if len(words) > 2 {
		what = words[2]
	}
	inTest, isTest := strings.CutPrefix(how, "test")
	switch testing := len(os.Args) == 2 && os.Args[1] == "self-test"; {
	case len(os.Args) == 2 && os.Args[1] == child:
		time.Sleep(time.Hour) // longer than any test: whoever started it has to end it
	case testing && isTest && inTest == "other":
		fmt.Println("islet 9.9.9 can run here")
	case testing && !isTest:
		fmt.Printf("islet %s can run here\n", version)
	default:
		fail(strings.TrimPrefix(how, "test"), what)
	}
}

func fail(how, what string) {
	n, _ := strconv.Atoi(what) // not all have a number
	switch how {
	case "crash":
		panic("this agent crashes")
	case "exit":
		os.Exit(n)
	case "signal":
		syscall.Kill(os.Getpid(), syscall.Signal(n))
	case "stop":
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "later":
		time.Sleep(time.Duration(n) * time.Millisecond) // the fault itself: the test draws how late
		os.Exit(3)
	case "deaf":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
	case "closes":
		syscall.Close(3)
	case "eat":
		eat(n)
	case "spin":
		for range runtime.NumCPU() {
			go func() {
				for {
				}
			}()
		}
	case "flood":
		for range n {
			os.Stderr.Write(bytes.Repeat([]byte("this agent floods its log ......\n"), 1<<15))
		}
	case "children":
		for range n {
			if err := exec.Command("/proc/self/exe", child).Start(); err != nil {
				panic(err)
			}
		}
		os.Exit(4)
	case "network":
		panic(elsewhere(what))
	case "blind":
		panic(syscall.Exec(what, append(os.Args, "--pod-manifest-path="), os.Environ()))
	}
	time.Sleep(time.Hour) // the fault itself: nothing, which Go would end as a deadlock if it waited for a channel
}

// eat takes so many MiB, or without a number all there are.
func eat(mib int) {
	var kept [][]byte
	for i := 0; mib == 0 || i < mib; i++ {
		kept = append(kept, bytes.Repeat([]byte{1}, 1<<20))
		time.Sleep(time.Millisecond) // little by little, as a leak does: 1 GiB a second at most
	}
	time.Sleep(time.Hour) // what it took stays taken
	runtime.KeepAlive(kept)
}

// elsewhere makes this process the agent that it is to replace, without a link.
func elsewhere(program string) error {
	runtime.LockOSThread()
	if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
		return err
	}
	return syscall.Exec(program, os.Args, os.Environ())
}
