package remotedialer

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"strings"
)

// Kinds of messages. A node ignores other kinds, which servers send each other.
const (
	kindData            = 1
	kindConnect         = 2
	kindError           = 3
	kindPause           = 6
	kindResume          = 7
	kindSyncConnections = 8
)

const (
	// maxMessage is the maximum size of a message in bytes. Servers send at most 32 KiB of data in a message.
	maxMessage = 1 << 20
	// maxText is the maximum length of an address or of an error in bytes.
	maxText = 266
	// unusedDeadline is the value of the unused number, which old peers read as a time in milliseconds.
	unusedDeadline = 15000
	// endOfStream is the text of the error that ends a connection in order.
	endOfStream = "EOF"
)

// A header is the beginning of a message.
type header struct {
	conn int64
	kind int64
}

func readHeader(r *bufio.Reader) (h header, err error) {
	numbers := [3]int64{}
	for i := range numbers {
		if numbers[i], err = binary.ReadVarint(r); err != nil {
			return h, err
		}
	}
	h.conn, h.kind = numbers[1], numbers[2]
	if h.kind == kindData || h.kind == kindConnect {
		_, err = binary.ReadVarint(r)
	}
	return h, err
}

// readText reads the rest of a message that contains an address or an error.
func readText(r io.Reader) (string, error) {
	b := make([]byte, maxText)
	n, err := io.ReadFull(r, b)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = nil
	}
	return string(b[:n]), err
}

// readTarget reads the network and the address of a Connect.
func readTarget(r io.Reader) (network, address string, err error) {
	text, err := readText(r)
	if err != nil {
		return "", "", err
	}
	network, address, ok := strings.Cut(text, "/")
	if !ok {
		return "", "", errors.New("a Connect has no address")
	}
	return network, address, nil
}

// appendHeader appends the beginning of a message.
func appendHeader(b []byte, number int64, h header) []byte {
	b = binary.AppendVarint(b, number)
	b = binary.AppendVarint(b, h.conn)
	b = binary.AppendVarint(b, h.kind)
	if h.kind == kindData || h.kind == kindConnect {
		b = binary.AppendVarint(b, unusedDeadline)
	}
	return b
}
