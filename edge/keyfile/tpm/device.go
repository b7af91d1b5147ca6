package tpm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/google/go-tpm/tpm2/transport"
	"golang.org/x/sys/unix"
)

// MaxResponse is the size of the largest response in bytes. TPMs of PCs send at most 4096 bytes.
const MaxResponse = 4096

// responseTimeout is the maximum duration of one command. Linux ends a command after 5 minutes at the latest. A TPM needs at most seconds
// for the commands of this package.
const responseTimeout = time.Minute

// errSilent means that a TPM has not answered within responseTimeout.
var errSilent = errors.New("no answer within a minute")

// A Device is an open connection to a TPM. Its methods must not be called concurrently.
type Device struct {
	path    string
	conn    io.ReadWriteCloser
	timeout time.Duration
	broken  error // the reason why the connection cannot be used anymore
}

// Dial opens a TPM. The path leads to a character device, such as /dev/tpmrm0, or of the unix socket of an emulator such as swtpm. The
// error is ErrNoDevice if no TPM can be reached at the path.
func Dial(path string) (*Device, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoDevice, err)
	}
	var conn io.ReadWriteCloser
	switch fi.Mode().Type() {
	case os.ModeSocket:
		conn, err = net.DialTimeout("unix", path, responseTimeout)
	case os.ModeDevice | os.ModeCharDevice:
		conn, err = openDevice(path)
	default:
		err = fmt.Errorf("%s is neither a device nor a socket", path)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoDevice, err)
	}
	return &Device{path: path, conn: conn, timeout: responseTimeout}, nil
}

// openDevice opens a device in blocking mode. os.OpenFile would choose the other mode for a device that can be polled. In that mode Linux
// runs a command in the background, and a read before its end returns nothing.
func openDevice(path string) (io.ReadWriteCloser, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Close closes the connection.
func (d *Device) Close() error { return d.conn.Close() }

var _ transport.TPM = (*Device)(nil)

// Send sends a command and returns the response. It implements transport.TPM. After an error of the connection, each further call returns
// the same error.
func (d *Device) Send(command []byte) ([]byte, error) {
	if d.broken != nil {
		return nil, d.broken
	}
	type result struct {
		data []byte
		err  error
	}
	done := make(chan result, 1) // a device has no deadline, so the read of a dead one is abandoned
	go func() {
		data, err := d.exchange(command)
		done <- result{data, err}
	}()
	timer := time.NewTimer(d.timeout)
	defer timer.Stop()
	select {
	case r := <-done:
		if r.err != nil {
			d.broken = fmt.Errorf("%w: %s: %w", ErrNoDevice, d.path, r.err)
		}
		return r.data, d.broken
	case <-timer.C:
		d.broken = fmt.Errorf("%w: %s: %w", ErrNoDevice, d.path, errSilent)
		return nil, d.broken
	}
}

const headerSize = 10 // tag, size, code

// exchange writes a command and reads its response. A device returns the whole response at once. A socket may return parts.
func (d *Device) exchange(command []byte) ([]byte, error) {
	if _, err := d.conn.Write(command); err != nil {
		return nil, err
	}
	buf := make([]byte, MaxResponse)
	n, err := io.ReadAtLeast(d.conn, buf, headerSize)
	if err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint32(buf[2:]))
	if size < headerSize || size > len(buf) || n > size {
		return nil, fmt.Errorf("the response has a wrong size: %d bytes announced, %d received", size, n)
	}
	_, err = io.ReadFull(d.conn, buf[n:size])
	return buf[:size], err
}
