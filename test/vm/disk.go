package vm

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
)

// A disk serves an image file to the emulator as a network block device. The file has the volatile write cache of real disks and cards:
// see cachedFile. A test can also let the power fail at a write, which is then not executed: see cutAt. All writes and flushes can be
// recorded: see Record.
type disk struct {
	size int64
	l    net.Listener

	serving sync.WaitGroup
	err     error // the error that ended serve; nil if the emulator closed the connection

	mu     sync.Mutex // protects the fields below
	image  cachedFile
	record *Record // nil: nothing is recorded
	writes int     // number of writes of the emulator
	cut    int     // the number of the write at which the power fails; 0 means never
	failed chan struct{}
}

// These are constants of the network block device protocol: fixed newstyle, one export, simple
// replies. https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md
const (
	nbdMagic       = 0x4e42444d41474943 // "NBDMAGIC"
	nbdOption      = 0x49484156454f5054 // "IHAVEOPT"
	nbdOptionReply = 0x3e889045565a9
	nbdRequest     = 0x25609513
	nbdReply       = 0x67446698

	optInfo, optGo                   = 6, 7
	repAck, repInfo, repUnsup        = 1, 3, 1<<31 | 1
	cmdRead, cmdWrite                = 0, 1
	cmdHangUp, cmdFlush              = 2, 3
	canFlush                         = 1 | 4 // the flags are valid, and flush is supported
	mostData                  uint32 = 64 << 20
)

// errPower is returned by serve if the power fails at a write.
var errPower = errors.New("the power has failed")

// cutAt makes the power fail at the n-th write from now on. The disk then closes the returned channel, and executes no further request. The
// caller must kill the emulator.
func (d *disk) cutAt(n int) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut, d.failed = d.writes+n, make(chan struct{})
	return d.failed
}

// countWrites returns the number of writes of all emulators.
func (d *disk) countWrites() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.writes
}

// write executes a write. It returns an error if the power fails at this write.
func (d *disk) write(data []byte, at int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writes++
	if d.cut != 0 && d.writes >= d.cut {
		d.cut = 0
		close(d.failed)
		return errPower
	}
	if d.record != nil {
		d.record.write(data, at)
	}
	return d.image.write(data, at)
}

func (d *disk) flush() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.record != nil {
		d.record.flush()
	}
	d.image.flush()
}

// newDisk serves a file on a unix socket until the disk is closed.
func newDisk(file, socket string) (*disk, error) {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &disk{size: st.Size(), l: l, image: cachedFile{f, map[int64][]byte{}}}, nil
}

// serveNext returns at once and serves the next emulator that connects in a goroutine.
func (d *disk) serveNext() {
	d.serving.Go(func() {
		c, err := d.l.Accept()
		if err != nil {
			d.err = err
			return
		}
		defer c.Close()
		rw := bufio.NewReadWriter(bufio.NewReaderSize(c, 1<<20), bufio.NewWriterSize(c, 1<<20))
		if d.err = d.negotiate(rw); d.err == nil {
			d.err = d.serve(rw)
		}
	})
}

// cutPower waits until all requests of the ended emulator are served, and then restores the old content of some sectors, like a power cut.
// It returns the number of these sectors.
func (d *disk) cutPower() (sectors int, err error) {
	d.serving.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut = 0
	if sectors, err = d.image.cutPower(func(int64) bool { return rand.IntN(2) == 0 }); err != nil {
		return sectors, err
	}
	// A killed emulator does not read all replies, so the write of a reply may fail.
	if slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE, errPower},
		func(end error) bool { return errors.Is(d.err, end) }) {
		d.err = nil // killed
	}
	return sectors, d.err
}

func (d *disk) close() { d.l.Close(); d.serving.Wait(); d.image.file.Close() }

// negotiate negotiates the export with the emulator.
func (d *disk) negotiate(rw *bufio.ReadWriter) error {
	send := func(values ...any) error {
		for _, v := range values {
			if err := binary.Write(rw, binary.BigEndian, v); err != nil {
				return err
			}
		}
		return rw.Flush()
	}
	if err := send(uint64(nbdMagic), uint64(nbdOption), uint16(3)); err != nil {
		return err
	}
	if _, err := rw.Discard(4); err != nil { // the client's flags
		return err
	}
	for {
		var o struct {
			Magic       uint64
			Option, Len uint32
		}
		if err := binary.Read(rw, binary.BigEndian, &o); err != nil {
			return err
		}
		if o.Magic != nbdOption || o.Len > mostData {
			return fmt.Errorf("not an option: %+v", o)
		}
		if _, err := rw.Discard(int(o.Len)); err != nil {
			return err
		}
		if o.Option != optInfo && o.Option != optGo {
			if err := send(uint64(nbdOptionReply), o.Option, uint32(repUnsup), uint32(0)); err != nil {
				return err
			}
			continue
		}
		err := send(uint64(nbdOptionReply), o.Option, uint32(repInfo), uint32(12), uint16(0), uint64(d.size), uint16(canFlush),
			uint64(nbdOptionReply), o.Option, uint32(repAck), uint32(0))
		if err != nil || o.Option == optGo {
			return err
		}
	}
}

// serve executes requests one after the other.
func (d *disk) serve(rw *bufio.ReadWriter) error {
	var buf []byte
	for {
		var r struct {
			Magic       uint32
			Flags, Type uint16
			Handle, At  uint64
			Len         uint32
		}
		if err := binary.Read(rw, binary.BigEndian, &r); err != nil {
			return err
		}
		if r.Magic != nbdRequest || r.Len > mostData || r.At%sector != 0 || r.Len%sector != 0 {
			return fmt.Errorf("not a request: %+v", r)
		}
		if int(r.Len) > len(buf) {
			buf = make([]byte, r.Len)
		}
		data, reply := buf[:r.Len], []byte(nil)
		var err error
		switch r.Type {
		case cmdRead:
			reply = data
			_, err = d.image.file.ReadAt(data, int64(r.At))
		case cmdWrite:
			if _, err = io.ReadFull(rw, data); err == nil {
				err = d.write(data, int64(r.At))
			}
		case cmdFlush:
			d.flush()
		case cmdHangUp:
			return nil
		default:
			err = fmt.Errorf("unknown command %d", r.Type)
		}
		if err != nil {
			return err
		}
		if err := binary.Write(rw, binary.BigEndian, struct {
			Magic, Error uint32
			Handle       uint64
		}{nbdReply, 0, r.Handle}); err != nil {
			return err
		}
		if _, err := rw.Write(reply); err != nil {
			return err
		}
		if err := rw.Flush(); err != nil {
			return err
		}
	}
}
