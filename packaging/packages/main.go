package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	const usage = "usage: packages make -version V -arch A -from DIR -to DIR"
	if len(args) == 0 {
		return errors.New(usage)
	}
	epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	b := buildArgs{buildTime: time.Unix(epoch, 0).UTC()}
	set := flag.NewFlagSet(args[0], flag.ContinueOnError)
	set.StringVar(&b.version, "version", "", "version of islet")
	set.StringVar(&b.arch, "arch", "", "architecture, as GOARCH")
	set.StringVar(&b.from, "from", "", "directory of make dist-one's archive")
	set.StringVar(&b.to, "to", "", "directory to write to")
	if err := set.Parse(args[1:]); err != nil {
		return err
	}
	switch {
	case b.from == "" || b.to == "":
		return errors.New(usage)
	case args[0] == "make" && b.version != "":
		return b.buildPackages()
	}
	return errors.New(usage)
}
