package podvolumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// terminationLog creates and mounts the file for the termination message of an attempt.
//
// https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
func (v *Volumes) terminationLog(pod *v1.Pod, ctr *v1.Container, out *api.ContainerConfig) error {
	if ctr.TerminationMessagePath == "" {
		return nil
	}
	dir := filepath.Join(v.podDir(pod.UID), "containers", ctr.Name)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return fmt.Errorf("make the container's directory: %w", err)
	}
	attempt := out.Metadata.GetAttempt()
	if err := dropOldAttempts(dir, attempt); err != nil {
		return err
	}
	path := filepath.Join(dir, fmt.Sprint(attempt))
	if err := createEmpty(path, terminationLog); err != nil {
		return fmt.Errorf("make the termination log: %w", err)
	}
	at := filepath.Join("/", ctr.TerminationMessagePath) // the API also accepts a relative path
	out.Mounts = append(out.Mounts, &api.Mount{ContainerPath: at, HostPath: path, SelinuxRelabel: true})
	return nil
}

// createEmpty creates an empty file with exactly the given mode. It does nothing if the file exists.
func createEmpty(path string, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(mode), f.Close())
}

func dropOldAttempts(dir string, newest uint32) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list termination logs: %w", err)
	}
	for _, e := range entries {
		if n, err := strconv.ParseUint(e.Name(), 10, 32); err == nil && n+keptAttempts < uint64(newest) {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("remove an old termination log: %w", err)
			}
		}
	}
	return nil
}

// keptAttempts is the number of termination logs of earlier attempts that are kept.
const keptAttempts = 4
