// Program is the program in the archives of the tests. The text after its last line feed selects the behaviour of its self-test. This
// text begins with one word, such as crash. After the words print and secrets, it contains a space and the text to print.
package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

func main() {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	how, text, _ := strings.Cut(string(self[bytes.LastIndexByte(self, '\n')+1:]), " ")
	switch how {
	case "print":
		fmt.Println(text)
	case "unfit":
		fmt.Println("it does not fit")
		os.Exit(78)
	case "tmp":
		entries, err := os.ReadDir(os.Getenv("TMPDIR"))
		fmt.Printf("TMPDIR=%s %v %v\n", os.Getenv("TMPDIR"), entries, err)
		os.Exit(1)
	case "full":
		fmt.Println("no space left on device")
		os.Exit(1)
	case "hang":
		time.Sleep(time.Hour) // longer than any self-test; the caller ends it
	case "crash":
		panic("it does not run here")
	case "abort":
		_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
		debug.SetTraceback("crash") // it ends by SIGABRT
		panic("it does not run here")
	case "killed":
		panic(syscall.Kill(os.Getpid(), syscall.SIGKILL))
	case "spam":
		for range 10_000 {
			fmt.Println(strings.Repeat("spam", 100))
		}
	case "flood":
		os.Stderr.Write(make([]byte, 1<<20))
		os.Exit(1)
	case "eat":
		var limit syscall.Rlimit // the caller sets it after the start
		for limit.Cur == 0 || limit.Cur > 8<<30 {
			if err := syscall.Getrlimit(syscall.RLIMIT_AS, &limit); err != nil {
				panic(err)
			}
		}
		b := make([]byte, 8<<30)
		fmt.Println(len(b))
	case "threads":
		_ = syscall.Setresuid(65534, 65534, 65534) // root is exempt from the limit
		const processes = 6                        // RLIMIT_NPROC
		if err := syscall.Setrlimit(processes, &syscall.Rlimit{}); err != nil {
			panic(err)
		}
		for range 100 {
			go func() {
				runtime.LockOSThread()
				select {}
			}()
		}
		time.Sleep(time.Hour) // longer than any self-test; the runtime ends it
	case "secrets":
		fmt.Println(text)
		if os.Getenv("SECRET") != "" {
			os.Exit(1)
		}
	}
}
