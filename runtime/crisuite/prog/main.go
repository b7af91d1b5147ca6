// Command prog is the program in the containers of the contract tests. It executes its arguments in
// order:
//
//	print TEXT   eprint TEXT   sleep DURATION   exit CODE   id   env NAME   cwd
//	reap             ignore SIGCHLD, so that the kernel reaps child processes
//	wait             wait for SIGTERM or SIGUSR1, then continue
//	ignore           ignore SIGTERM until SIGKILL
//	cat              copy stdin to stdout
//	alloc MIB        allocate and use memory
//	child ARG...     run itself with the remaining arguments, print the result
//	orphan ARG...    run itself with the remaining arguments without waiting
//	lines N          print N numbered lines
//	write PATH TEXT  read PATH  ls PATH  hostname  pid  serve PORT
//	put PATH TEXT    write the text, print the error or <nil>
//	fill PATH        append to the file until that fails, print the error
//	room PATH        print the size of the file system in MiB, and the mode of PATH
//	size             print the size of the terminal when it is set
//	fds              print the target of each open file descriptor
//	owner PATH       print the UID and GID of the file
//	opens PATH       open for writing, print the error or <nil>; nothing is written
//	super PATH       print ro or rw, the option of the superblock at the mount point
//	segment KEY SIZE open a shared memory segment, create it if SIZE > 0, print the error or <nil>
//	rename NAME      set the hostname
//	node PATH MAJOR MINOR  create a character device, print the error or <nil>
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == "pause" { // the pause container of another runtime
		args = []string{"wait"}
	}
	next := func() string {
		if len(args) == 0 {
			fail("an argument is missing")
		}
		a := args[0]
		args = args[1:]
		return a
	}
	for len(args) > 0 {
		switch verb := next(); verb {
		case "child", "orphan":
			run(verb, args)
			args = nil
		default:
			if !executeVerb(verb, next) {
				fail("unknown verb " + verb)
			}
		}
	}
}

func run(verb string, args []string) {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if verb == "orphan" {
		exitOnError(cmd.Start())
		return
	}
	err := cmd.Run()
	fmt.Println("child:", err)
	if err != nil {
		os.Exit(3)
	}
}

func executeVerb(verb string, next func() string) bool {
	switch verb {
	case "print":
		fmt.Println(next())
	case "eprint":
		fmt.Fprintln(os.Stderr, next())
	case "sleep":
		d, err := time.ParseDuration(next())
		exitOnError(err)
		time.Sleep(d)
	case "exit":
		n, err := strconv.Atoi(next())
		exitOnError(err)
		os.Exit(n)
	case "wait":
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM, syscall.SIGUSR1)
		fmt.Println("waiting")
		fmt.Println("signal", <-c)
	case "once": // a second SIGTERM ends the program
		c := make(chan os.Signal, 2)
		signal.Notify(c, syscall.SIGTERM)
		fmt.Println("waiting")
		fmt.Println("signal", <-c)
		fmt.Println("again", <-c)
		os.Exit(3)
	case "reap": // the kernel then reaps child processes
		signal.Ignore(syscall.SIGCHLD)
	case "ignore":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ignoring")
		time.Sleep(time.Hour)
	case "cat":
		_, err := io.Copy(os.Stdout, os.Stdin)
		exitOnError(err)
	case "alloc":
		n, err := strconv.Atoi(next())
		exitOnError(err)
		b := make([]byte, n<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		fmt.Println("allocated", len(b))
	case "lines":
		n, err := strconv.Atoi(next())
		exitOnError(err)
		w := bufio.NewWriter(os.Stdout)
		for i := range n {
			fmt.Fprintln(w, i)
		}
		exitOnError(w.Flush())
	case "serve":
		serve(next())
	case "forked": // a child process that keeps the output open without writing
		run("orphan", []string{"sleep", next()})
	case "late": // a child process that writes after a delay
		run("orphan", []string{"sleep", next(), "lines", next()})
	default:
		return printProperty(verb, next)
	}
	return true
}

// printProperty executes a verb that prints a property of the process or of a file.
func printProperty(verb string, next func() string) bool {
	switch verb {
	case "id":
		groups, err := os.Getgroups()
		exitOnError(err)
		fmt.Println(os.Getuid(), os.Getgid(), groups)
	case "env":
		fmt.Println(os.Getenv(next()))
	case "cwd":
		d, err := os.Getwd()
		exitOnError(err)
		fmt.Println(d)
	case "hostname":
		h, err := os.Hostname()
		exitOnError(err)
		fmt.Println(h)
	case "owner":
		var st unix.Stat_t
		exitOnError(unix.Lstat(next(), &st))
		fmt.Println(st.Uid, st.Gid)
	case "pid":
		fmt.Println(os.Getpid())
	case "write":
		path := next()
		exitOnError(os.WriteFile(path, []byte(next()), 0o644))
	case "read":
		b, err := os.ReadFile(next())
		exitOnError(err)
		fmt.Println(strings.TrimSpace(string(b)))
	case "ls":
		e, err := os.ReadDir(next())
		exitOnError(err)
		for _, f := range e {
			fmt.Println(f.Name())
		}
	case "opens":
		f, err := os.OpenFile(next(), os.O_WRONLY, 0)
		if err == nil {
			err = f.Close()
		}
		fmt.Println("open:", err)
	case "node":
		path := next()
		major, err := strconv.Atoi(next())
		exitOnError(err)
		minor, err := strconv.Atoi(next())
		exitOnError(err)
		fmt.Println("node:", unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(uint32(major), uint32(minor)))))
	case "put":
		path := next()
		fmt.Println("put:", os.WriteFile(path, []byte(next()), 0o644))
	case "fill":
		fill(next())
	case "room":
		path := next()
		var fs unix.Statfs_t
		exitOnError(unix.Statfs(path, &fs))
		st, err := os.Stat(path)
		exitOnError(err)
		fmt.Println(int64(fs.Blocks)*int64(fs.Bsize)>>20, st.Mode())
	case "fds":
		showDescriptors()
	case "size":
		showSize()
	default:
		return showShared(verb, next)
	}
	return true
}

// showDescriptors prints the targets of the open file descriptors.
func showDescriptors() {
	for fd := range 1024 {
		if target, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)); err == nil {
			fmt.Println(target)
		}
	}
}

// showSize waits until the size of the terminal is set, and prints it.
func showSize() {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	for {
		ws, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
		exitOnError(err)
		if ws.Col > 0 {
			fmt.Println(ws.Col, ws.Row)
			return
		}
		<-changed
	}
}

// fill appends to a file until that fails. It is an error if the file exceeds 256 MiB.
func fill(path string) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	exitOnError(err)
	defer f.Close()
	for b := make([]byte, 1<<20); err == nil; {
		_, err = f.Write(b)
		if at, _ := f.Seek(0, io.SeekCurrent); at > 256<<20 {
			fail("no limit")
		}
	}
	fmt.Println("fill:", err)
}

// serve listens on a port and echoes the data of each connection.
func serve(port string) {
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	exitOnError(err)
	fmt.Println("listening")
	for {
		c, err := l.Accept()
		exitOnError(err)
		go func() { io.Copy(c, c); c.Close() }()
	}
}

func exitOnError(err error) {
	if err != nil {
		fail(err.Error())
	}
}

func fail(msg string) {
	fmt.Fprintln(os.Stderr, "prog:", msg)
	os.Exit(99)
}
