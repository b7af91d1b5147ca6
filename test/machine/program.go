package machine

import (
	"os"
	"syscall"
)

// WriteProgram writes a program that the test executes. While the file is open for writing, no other test of the process can fork. The
// child would have the file open until it executes its own program, and the kernel would not execute the file (ETXTBSY).
func WriteProgram(path string, program []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, program, 0o755)
}
