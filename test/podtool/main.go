// Command podtool is the program inside the test pods.
//
//	count EVERY        prints the numbers 0, 1, 2 ..., one every EVERY
//	exit CODE [AFTER]  ends with the exit code CODE after the time AFTER
//	lines N CODE [leave|await|read]  writes N lines of 100 bytes, then ends with CODE
//	sleep              waits for SIGTERM
//	stubborn           ignores SIGTERM
//	serve ADDR [LOG]   responds to every HTTP request with the host name, and records it in LOG;
//	                   /lines/N responds with N lines of 100 bytes
//	live LOG NAME      records its start in LOG, and its end after SIGTERM
//	hook LOG NAME [F]  records its start in LOG, and its end when the file F exists
//	once FILE CODE     creates FILE and ends with CODE; if FILE exists, it sleeps
//	eat MIB [EVERY]    allocates memory, one MiB every EVERY, then sleeps
//	burn               uses all CPU time of a processor
//	reread FILE MIB    writes a file of MIB MiB, then reads it again and again
//	fill FILE MIB      writes a file of MIB MiB, then sleeps
//	litter DIR N       creates N empty files, then sleeps
//	fork N             starts N processes that sleep, then sleeps
//	get URL            fetches a page and prints it
//	cat FILE..., ls DIR, rm FILE, env, write FILE TEXT, mount DIR
//	open FILE...       opens files for reading and writing, such as devices
//	node FILE b|c MAJOR MINOR  creates a device node
//	fork TOTAL         starts processes until the machine has TOTAL processes and threads
//	size               prints the size of its terminal, at first and after every change
//	install NAME       creates a link to podtool, such as tar; the link's name selects the program
//	flannel DIR SUBNET sets up a pod network as flannel's DaemonSet does; called as
//	                   flannel, it is that network's CNI plugin
//	journal FILE EVERY appends numbered, synced records and prints the number of each
//	sole FILE          appends "started" to FILE and locks it until SIGTERM; if another process
//	                   has the lock, it appends "twice" and ends
//	cyclic EVERY N [P] wakes N times, prints its largest latency, then sleeps. With P, it selects FIFO
//	                   with priority P and ends
//	mark FILE CODE     appends the time to FILE, then ends with CODE
//	role PATH ARG...   does the work of the program PATH of an image in docs/examples
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

func main() {
	args := os.Args[1:]
	if os.Args[0] == "tar" {
		args = os.Args
	}
	if filepath.Base(os.Args[0]) == "pause" { // for runtimes whose sandboxes need a process
		args = []string{"sleep"}
	}
	if filepath.Base(os.Args[0]) == "flannel" {
		if err := runFlannel(); err != nil {
			fmt.Printf(`{"code": 100, "msg": %q}`, err.Error())
			os.Exit(1)
		}
		return
	}
	code, err := run(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "podtool:", err)
		code = 1
	}
	os.Exit(code)
}

func run(args []string) (int, error) { //revive:disable-line:cyclomatic a table of commands
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	arg := func(i int, def string) string {
		if len(args) > i {
			return args[i]
		}
		return def
	}
	switch arg(0, "") {
	case "count":
		return 0, count(ctx, arg(1, "10ms"))
	case "exit":
		code, err := strconv.Atoi(arg(1, "0"))
		return code, errors.Join(err, waitFor(ctx, arg(2, "0s")))
	case "lines":
		return runLines(args[1:])
	case "sleep":
		<-ctx.Done()
		return 0, nil
	case "cyclic":
		err := cyclic(arg(1, "1ms"), arg(2, "1000"), arg(3, ""))
		if err == nil && arg(3, "") == "" {
			<-ctx.Done()
		}
		return 0, err
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ignoring SIGTERM")
		select {}
	case "serve":
		return 0, serve(ctx, arg(1, ":80"), arg(2, os.DevNull))
	case "live":
		err := add(arg(1, ""), arg(2, "")+" starts\n")
		<-ctx.Done()
		return 0, errors.Join(err, add(arg(1, ""), arg(2, "")+" ends\n"))
	case "hook":
		return 0, runHook(arg(1, ""), arg(2, ""), arg(3, "/"))
	case "once":
		if _, err := os.Stat(arg(1, "")); err == nil {
			<-ctx.Done()
			return 0, nil
		}
		code, err := strconv.Atoi(arg(2, "0"))
		return code, errors.Join(err, add(arg(1, ""), ""))
	case "reread":
		return 0, reread(ctx, arg(1, "file"), arg(2, "1"))
	case "eat":
		return 0, eat(ctx, arg(1, "1"), arg(2, "0s"))
	case "burn":
		for ctx.Err() == nil {
		}
		return 0, nil
	case "fill":
		return 0, fill(ctx, arg(1, ""), arg(2, "1"))
	case "litter":
		return 0, createFiles(ctx, arg(1, ""), arg(2, "1"))
	case "fork":
		return 0, forkUntil(ctx, arg(1, "1"))
	case "flannel":
		return 0, runFlanneld(ctx, arg(1, ""), arg(2, ""), args[min(3, len(args)):]...)
	case "journal":
		return 0, writeJournal(ctx, arg(1, ""), arg(2, "20ms"))
	case "sole":
		return 0, runSole(ctx, arg(1, ""))
	case "role":
		return 0, runRole(ctx, args[1:])
	case "mark":
		code, err := strconv.Atoi(arg(2, "0"))
		return code, errors.Join(err, add(arg(1, ""), time.Now().Format(time.RFC3339Nano)+"\n"))
	}
	return 0, runTool(args)
}

// runTool implements small shell tools, for exec.
func runTool(args []string) error {
	if len(args) == 0 {
		return errors.New("no command")
	}
	switch args[0] {
	case "env":
		fmt.Println(strings.Join(os.Environ(), "\n"))
		return nil
	case "get":
		c := http.Client{Timeout: 5 * time.Second}
		r, err := c.Get(args[1])
		if err != nil {
			return err
		}
		defer r.Body.Close()
		_, err = io.Copy(os.Stdout, r.Body)
		return err
	case "ls":
		entries, err := os.ReadDir(args[1])
		for _, e := range entries {
			fmt.Println(e.Name())
		}
		return err
	case "write":
		return add(args[1], args[2])
	case "open":
		return open(args[1:])
	case "node":
		return createNode(args[1:])
	case "rm":
		return os.Remove(args[1])
	case "mount":
		return os.NewSyscallError("mount", syscall.Mount("none", args[1], "tmpfs", 0, ""))
	case "size":
		return printSizes()
	case "cp": // -f FROM TO
		return copyFile(args[2], args[3])
	case "install":
		return os.Symlink("podtool", "/"+args[1])
	case "tar":
		return archive(args[1:])
	case "cat":
		if len(args) == 1 {
			_, err := io.Copy(os.Stdout, os.Stdin)
			return err
		}
		for _, f := range args[1:] {
			if err := catFile(f); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("unknown: %q", args[0])
}

func catFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(os.Stdout, f)
	return err
}

// open opens files for reading and writing.
func open(names []string) error {
	for _, name := range names {
		f, err := os.OpenFile(name, os.O_RDWR|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
		if err != nil {
			return err
		}
		f.Close()
	}
	return nil
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}

func count(ctx context.Context, every string) error {
	d, err := time.ParseDuration(every)
	if err != nil {
		return err
	}
	tick := time.NewTicker(d)
	defer tick.Stop()
	out := bufio.NewWriter(os.Stdout)
	for n := 0; ; n++ {
		fmt.Fprintln(out, n)
		out.Flush()
		select {
		case <-tick.C:
		case <-ctx.Done():
			fmt.Println("end")
			return nil
		}
	}
}

func waitFor(ctx context.Context, after string) error {
	d, err := time.ParseDuration(after)
	if err != nil {
		return err
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return nil
}

// runHook records the start and end of a lifecycle hook, and waits for a file in between.
func runHook(log, name, gate string) error {
	if err := add(log, name+" begins\n"); err != nil {
		return err
	}
	for {
		if _, err := os.Stat(gate); err == nil {
			return add(log, name+" is over\n")
		}
		time.Sleep(10 * time.Millisecond) // poll, because some kinds of volumes have no file events
	}
}

func serve(ctx context.Context, addr, log string) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	handler := http.NewServeMux()
	handler.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if err := add(log, r.URL.Path+" by "+r.UserAgent()+"\n"); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		fmt.Fprintln(w, host)
	})
	handler.HandleFunc("/lines/{n}", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.PathValue("n"))
		if err := writeLines(w, n); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	})
	for path, wanted := range map[string]bool{"/if/": true, "/unless/": false} { // for probes that test whether a file exists
		handler.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if _, err := os.Stat(strings.TrimPrefix(r.URL.Path, strings.TrimSuffix(path, "/"))); (err == nil) != wanted {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
	}
	s := &http.Server{Addr: addr, Handler: handler}
	go func() { <-ctx.Done(); s.Close() }()
	if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func eat(ctx context.Context, mib, every string) error {
	n, err := strconv.Atoi(mib)
	if err != nil {
		return err
	}
	all := make([][]byte, n) // the kernel immediately rejects a request that it can never satisfy
	for i := range all {
		if err := waitFor(ctx, every); err != nil {
			return err
		}
		all[i] = make([]byte, 1<<20)
		for at := 0; at < len(all[i]); at += 4096 {
			all[i][at] = 1
		}
	}
	fmt.Println("ate", n, "MiB")
	<-ctx.Done()
	fmt.Println(len(all))
	return nil
}

func fill(ctx context.Context, file, mib string) error {
	if err := grow(file, mib); err != nil {
		return err
	}
	fmt.Println("filled", mib, "MiB")
	<-ctx.Done()
	return nil
}

// grow creates a file of the given number of MiB.
func grow(file, mib string) error {
	n, err := strconv.Atoi(mib)
	if err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	for range n {
		if _, err := f.Write(make([]byte, 1<<20)); err != nil {
			return err
		}
	}
	return nil
}

// reread reads a file again and again. If the memory is too small for the whole file, the process waits for the disk.
func reread(ctx context.Context, file, mib string) error {
	if err := grow(file, mib); err != nil {
		return err
	}
	fmt.Println("rereads", mib, "MiB")
	for ctx.Err() == nil {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, f)
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func add(file, text string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// printSizes prints the rows and columns of the terminal, at first and after every change, until it
// is killed.
func printSizes() error {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	for {
		var size [4]uint16
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, 0, syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
		if errno != 0 {
			return errno
		}
		fmt.Println(size[0], size[1])
		<-changed
	}
}
