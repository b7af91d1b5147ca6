package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
)

// runLines writes the given number of numbered lines of 100 bytes, and returns the exit code. With
// the argument "leave" it starts a child process that writes no output and keeps the output open.
// With "await" it first waits for a line of input. With "read" it finally waits for the end of the
// input.
func runLines(args []string) (code int, err error) {
	var n int
	if len(args) < 2 {
		return 0, fmt.Errorf("lines needs a number and a code")
	}
	if n, err = strconv.Atoi(args[0]); err == nil {
		code, err = strconv.Atoi(args[1])
	}
	if err != nil {
		return 0, err
	}
	in := bufio.NewReader(os.Stdin)
	if slices.Contains(args, "await") {
		if _, err := in.ReadString('\n'); err != nil {
			return 0, err
		}
	}
	if slices.Contains(args, "leave") {
		child := exec.Command("/proc/self/exe", "sleep")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			return 0, err
		}
	}
	if err := writeLines(os.Stdout, n); err != nil {
		return 0, err
	}
	if slices.Contains(args, "read") {
		if _, err := io.Copy(io.Discard, in); err != nil {
			return 0, err
		}
	}
	return code, nil
}

func writeLines(w io.Writer, n int) error {
	out := bufio.NewWriterSize(w, 64<<10)
	for i := range n {
		fmt.Fprintf(out, "%099d\n", i)
	}
	return out.Flush()
}
