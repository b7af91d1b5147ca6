package backups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/islet-edge/islet/agent/host/process"
	"github.com/islet-edge/islet/agent/host/sealkey"
	"github.com/islet-edge/islet/agent/host/volatile"
	"github.com/islet-edge/islet/edge/backup"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/hostcommand"
	"github.com/islet-edge/islet/internal/k3s"
	"github.com/islet-edge/islet/internal/printable"
)

// defaultTPM is the device of a TPM if --tpm names no other one.
const defaultTPM = "/dev/tpmrm0"

// maxNames is the maximum number of names of files that restore prints.
const maxNames = 100

// restore puts the node of a backup on this board.
func (env Env) restore(ctx context.Context, o *options) error {
	dirs, _, err := config.Locate(env.agentFlags(o))
	if err != nil {
		return hostcommand.Usage(err)
	}
	q := backup.Request{
		Dirs: dirs, Conf: config.DefaultDir, Include: o.include, SetAside: o.setAside, DryRun: o.dryRun, Highest: o.highest,
		Now: env.Now, TPM: defaultTPM, Policies: filepath.Join(config.DefaultDir, "policies"), Step: env.Step,
		Stage: env.progress(o).stage,
		Start: func(board fs.FS) ([]backup.Identity, error) { return env.starts(o, board) },
	}
	if o.tpm != "" {
		q.TPM = o.tpm
	}
	if covered, err := volatile.IsCovered(dirs.State); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	} else if covered {
		return fmt.Errorf("the disk of %s takes no writes", dirs.State)
	}
	archive, err := env.openFile(o)
	if err != nil {
		return err
	}
	defer archive.Close()
	if o.recovery {
		if q.Recovery, err = sealkey.ReadRecovery(env.Stdin, env.Stderr); err != nil {
			return fmt.Errorf("read the recovery key: %w", err)
		}
	}
	release, err := lockState(dirs.State)
	if err != nil {
		return err
	}
	if !o.dryRun {
		env.printOtherState(dirs.State)
	}
	res, err := backup.Restore(ctx, archive, q)
	if err := errors.Join(err, release(err != nil || o.dryRun)); err != nil {
		return err
	}
	env.printSummary(&res.Summary)
	if res.Unread != nil {
		fmt.Fprintf(env.Stdout, "note: the numbers of bundles of the node before cannot be read (%s): pass them with --bundle-number\n",
			printable.Line(res.Unread.Error()))
	}
	if res.UnreadIndex != nil {
		fmt.Fprintf(env.Stdout, "note: a record of the newest index of versions cannot be read and is ignored (%s)\n",
			printable.Line(res.UnreadIndex.Error()))
	}
	if isOlder(&res.Summary) {
		b := res.Manifest.InUse
		fmt.Fprintf(env.Stdout, "note: the node used %s number %d, and takes no number below %d by itself: to use that bundle again, run "+
			"islet bundle apply --older\n", printable.Cut(b.Name, 80), b.Number, res.Manifest.Bundles[b.Name])
	}
	if o.dryRun {
		env.printInTheWay(res.InTheWay)
		fmt.Fprintln(env.Stdout, "this backup can be restored on this board; nothing was changed")
		return nil
	}
	env.printResult(res)
	return nil
}

// printOtherState names the state directory if the service would start the agent with another one. That agent would not find a restore that
// was interrupted.
func (env Env) printOtherState(state string) {
	if env.ServiceFlags == nil {
		return
	}
	flags, hasService := env.ServiceFlags(os.DirFS("/")) // without a service, the agent may be started without flags
	if dirs, err := config.Directories(flags); err == nil && dirs.State == state {
		return
	}
	why := ""
	if hasService {
		why = ", and the service does not have this flag"
	}
	fmt.Fprintf(env.Stdout, "note: if this command is interrupted, only an agent with --state-dir=%s completes the restore%s\n",
		printable.Line(state), why)
}

// lockState locks the state directory and the directory of the k3s cluster below it, so that no agent, islet join or islet setup runs. The
// returned function releases the locks. If nothing was restored, it also removes the directories and the file that the locks have created.
func lockState(state string) (release func(nothing bool) error, err error) {
	lock, cluster := filepath.Join(state, "lock"), k3s.Root(state)
	_, err = os.Lstat(lock)
	isNew := errors.Is(err, fs.ErrNotExist)
	locks, err := process.Lock(state)
	if err != nil {
		return nil, fmt.Errorf("stop the agent first: %w", err)
	}
	_, err = os.Lstat(cluster)
	isNewCluster := errors.Is(err, fs.ErrNotExist)
	join, err := k3s.Lock(cluster)
	var setup *os.File
	if err == nil {
		setup, err = k3s.LockState(state)
	}
	end := func(nothing bool) error {
		if nothing && isNewCluster {
			_ = os.Remove(cluster)
		}
		if nothing && isNew {
			_ = os.Remove(lock)
			_ = os.Remove(state) // fails if the directory had files before
		}
		setup.Close() // also if it is nil
		join.Close()
		return locks.Close()
	}
	if err != nil {
		return nil, errors.Join(err, end(true))
	}
	return end, nil
}

// printInTheWay prints the files that a restore would set aside.
func (env Env) printInTheWay(paths []string) {
	for i, path := range paths {
		if i == maxNames {
			fmt.Fprintf(env.Stdout, "and %d more files would get another name\n", len(paths)-i)
			return
		}
		fmt.Fprintf(env.Stdout, "would get another name: %s\n", printable.Line(path))
	}
}

func (env Env) printResult(res *backup.Result) {
	w := env.Stdout
	if res.Aside != "" {
		fmt.Fprintf(w, "files that were in the way are beside the new ones, as .NAME%s\n", res.Aside)
	}
	if res.PlainKey {
		fmt.Fprintln(w, "store.key is plain on this board: seal it to its TPM with islet key seal")
	}
	m := res.Manifest
	if len(m.Bundles) > 0 {
		fmt.Fprintf(w, "the node takes no bundle below %s. If the old board had a higher number, restore again before the agent starts, "+
			"with --set-aside --bundle-number=NAME=NUMBER, and copy the data of claims after it\n", describeNumbers(m.Bundles))
	}
	start := ""
	if env.StartCommand != nil {
		start = env.StartCommand()
	}
	if start != "" {
		start = " (" + start + ")"
	}
	fmt.Fprintf(w, "%s is restored. Start the agent%s. Images that it lacks are pulled again; volumes are empty.\n",
		printable.Line(m.Node), start)
}

// Resume ends a restore that was interrupted on this machine, before the agent with these flags reads its files. It does nothing if there
// was none. An agent can run with what is left of a restore that was not decided, for example if the disk takes no writes.
func Resume(args []string) error {
	dirs, _, err := config.Locate(args)
	if err != nil || !backup.Pending(dirs.State) { // Load reports the error
		return nil
	}
	locks, err := process.Lock(dirs.State) // islet join does not begin while there is a restore to complete
	if err == nil {
		err = errors.Join(backup.Recover(dirs.State), locks.Close())
	}
	if !backup.IsDecided(dirs.State) {
		return nil
	}
	return err
}
