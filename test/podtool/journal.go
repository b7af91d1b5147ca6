package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// writeJournal appends numbered records to a file at an interval, and prints each number after the
// record is synced. First it prints the number of its first record. It returns an error if the
// records in the file are not consecutive. It removes the last record if it is incomplete, because
// the number of an incomplete record was never printed.
func writeJournal(ctx context.Context, name, every string) error {
	pause, err := time.ParseDuration(every)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	whole := bytes.LastIndexByte(b, '\n') + 1
	next := 0
	for line := range bytes.Lines(b[:whole]) {
		if string(line) != strconv.Itoa(next)+"\n" {
			return fmt.Errorf("record %d is %q", next, line)
		}
		next++
	}
	if err := f.Truncate(int64(whole)); err != nil {
		return err
	}
	if _, err := f.Seek(int64(whole), io.SeekStart); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), dir.Sync(), dir.Close()); err != nil {
		return err
	}
	fmt.Println("from", next)
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for ; ; next++ {
		_, err := fmt.Fprintln(f, next)
		if err := errors.Join(err, f.Sync()); err != nil {
			return err
		}
		fmt.Println("kept", next)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
