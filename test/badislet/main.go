// Command badislet is a faulty version of islet. A test appends a line to the program file. The
// line contains the version, and one of the following faults with its argument. If the name of a
// fault begins with "test", the fault occurs in the self-test. A program with any other fault
// passes the self-test.
//
//	crash          panics at once
//	exit CODE      ends at once with the exit code
//	signal NUMBER  kills itself
//	stop           stops itself (SIGSTOP), like a process that is being debugged
//	later MS       ends after the given number of milliseconds
//	hang           sleeps
//	deaf           sleeps, and ignores SIGTERM and SIGINT
//	closes         closes the descriptor for its reports, as daemons do, and then sleeps
//	eat MIB        allocates the memory gradually, and then sleeps
//	spin           uses all CPU time of every processor
//	flood MIB      writes the given amount to its log, and then sleeps
//	children N     starts N processes that continue to run, and ends
//	network FILE   executes the program FILE in a network namespace without a link
//	blind FILE     executes the program FILE without a manifest directory
//	testcrash, testexit CODE, testhang, testeat, testflood
//	testother      reports that another version has passed the self-test
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

// child is the argument of a process that the fault "children" starts.
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
		time.Sleep(time.Hour) // longer than any test; islet has to end it
	case testing && isTest && inTest == "other":
		fmt.Println("islet 9.9.9 can run here")
	case testing && !isTest:
		fmt.Printf("islet %s can run here\n", version)
	default:
		fail(strings.TrimPrefix(how, "test"), what)
	}
}

func fail(how, what string) {
	n, _ := strconv.Atoi(what) // an error means that the fault has no number
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
		time.Sleep(time.Duration(n) * time.Millisecond) // this wait is the fault; the test chooses a random time
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
		panic(execIsolated(what))
	case "blind":
		panic(syscall.Exec(what, append(os.Args, "--pod-manifest-path="), os.Environ()))
	}
	time.Sleep(time.Hour) // the process has to hang; Go would end a process that waits for a channel because of the deadlock
}

// eat allocates the given number of MiB, or all memory if the number is 0.
func eat(mib int) {
	var kept [][]byte
	for i := 0; mib == 0 || i < mib; i++ {
		kept = append(kept, bytes.Repeat([]byte{1}, 1<<20))
		time.Sleep(time.Millisecond) // allocate slowly, like a leak: at most 1 GiB per second
	}
	time.Sleep(time.Hour) // keep the memory
	runtime.KeepAlive(kept)
}

// execIsolated executes the given agent in a network namespace without a link.
func execIsolated(program string) error {
	runtime.LockOSThread()
	if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
		return err
	}
	return syscall.Exec(program, os.Args, os.Environ())
}
