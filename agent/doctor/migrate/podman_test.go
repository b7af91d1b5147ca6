package migrate

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestRootless checks the units of systemd and the volumes of users without root. No step puts their manifests in place, and the report
// reads none of their manifests.
func TestRootless(t *testing.T) {
	root := t.TempDir()
	put(t, root, "etc/passwd", "root:x:0:0:root:/root:/bin/bash\nann:x:1000:1000::/home/ann:/bin/bash\nbob:x:1001:1001::/home/bob:/bin/bash\neve:x:1002:1002::/home/eve:/bin/sh")
	const units = "home/ann/.config/systemd/user/"
	put(t, root, units+"container-x.service", "[Service]\nExecStart=/usr/bin/podman run --name x -v db:/data localhost/a:1")
	put(t, root, units+"play.service", "[Service]\nExecStart=/usr/bin/podman kube play --configmap /home/ann/map.yaml /home/ann/play.yaml")
	put(t, root, units+"default.target.wants/container-x.service -> ../container-x.service", "")
	put(t, root, units+"default.target.wants/podman-restart.service -> /usr/lib/systemd/user/podman-restart.service", "")
	put(t, root, units+"link.service -> /etc/systemd/system/other.service", "")
	put(t, root, "home/ann/play.yaml", "kind: Pod")
	put(t, root, "home/ann/map.yaml", "kind: ConfigMap")
	put(t, root, "home/ann/.config/containers/systemd/db.volume", "[Volume]")
	put(t, root, "home/ann/.local/share/containers/storage/volumes/db/_data/x", "")
	put(t, root, "home/bob/.config/containers/storage.conf", "[storage]\ngraphroot = \"$HOME/big\"")
	put(t, root, "home/bob/big/volumes/db/_data/x", "")
	put(t, root, "etc/systemd/user/all.service", "[Service]\nExecStart=/usr/bin/podman start all")
	r := Find(NewTree(root), nil)
	checkOutput(t, r)
	if len(r.Found) != 1 || r.Found[0].What != "2 services of containers" {
		t.Errorf("%+v", r.Found)
	}
	inOrder(t, r.Steps, []string{"mkdir -p /root/for-islet/users/ann", "sudo -iu ann podman generate kube x >/root/for-islet/users/ann/container-x.yaml",
		"sudo -iu ann sh -c 'podman save", "mv /home/ann/podman.tar /var/lib/islet/images/ann.tar", "sudo -iu bob sh -c 'podman save",
		"systemctl --user --machine=ann@ stop -- container-x", "systemctl --user --machine=ann@ disable -- container-x",
		"systemctl --user --machine=ann@ disable -- podman-restart", "sudo -iu ann podman stop --all", "sudo -iu bob podman stop --all",
		"install -d -m 700 /var/lib/islet/claims /var/lib/islet/claims/default", "sudo -iu ann sh -c 'podman volume export db | cat' | tar", "sudo -iu bob sh -c 'podman volume export db | cat' | tar"})
	inOrder(t, r.Back, []string{"rm -f /var/lib/islet/images/ann.tar", "sudo -iu ann podman volume import db -"})
	inOrder(t, r.Back, []string{"systemctl --user --machine=ann@ start -- container-x", "systemctl --user --machine=ann@ enable -- container-x",
		"sudo -iu ann podman start --all"})
	var files, differs []string
	for _, f := range r.Files {
		files = append(files, f.Path)
	}
	for _, n := range r.Differs {
		differs = append(differs, n.File+"|"+n.Key+"|"+n.What)
	}
	if !slices.Equal(files, []string{"users/ann/claims.yaml", "users/bob/claims.yaml"}) {
		t.Errorf("%q", files)
	}
	text := strings.Join(differs, "\n")
	for _, want := range []string{"/etc/systemd/user/all.service|", "play.service|Yaml=/home/ann/play.yaml|review", "play.service|Yaml=/home/ann/map.yaml|review",
		"db.volume||the claim of a manifest: see users/ann/claims.yaml", "/home/bob/big/volumes/db/_data||write bob-db instead of db"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if text := fmt.Sprint(r.Steps); strings.Contains(text, "-iu eve") || strings.Contains(text, "-- link") {
		t.Errorf("a user without containers: %s", text)
	}
}

// TestPodmanStorage checks that volumes are found in the directories that the settings of podman name.
func TestPodmanStorage(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string // the directory of the volumes
	}{
		"usual":             {nil, "/var/lib/containers/storage/volumes"},
		"graphroot":         {map[string]string{"etc/containers/storage.conf": "[storage]\ngraphroot = \"/mnt/ssd/podman\""}, "/mnt/ssd/podman/volumes"},
		"volume_path":       {map[string]string{"etc/containers/containers.conf": "[engine]\nvolume_path = \"/mnt/volumes\""}, "/mnt/volumes"},
		"a user":            {nil, "/home/ann/.local/share/containers/storage/volumes"},
		"graphroot of root": {map[string]string{"etc/containers/storage.conf": "[storage]\ngraphroot = \"/mnt/ssd/podman\""}, "/home/ann/.local/share/containers/storage/volumes"},
		"rootless_storage_path": {map[string]string{"etc/containers/storage.conf": "[storage]\nrootless_storage_path = \"/mnt/$USER/podman\""},
			"/mnt/ann/podman/volumes"},
		"volume_path of root":   {map[string]string{"etc/containers/containers.conf": "[engine]\nvolume_path = \"$HOME/v\""}, "/root/v"},
		"volume_path of a user": {map[string]string{"home/ann/.config/containers/containers.conf": "[engine]\nvolume_path = \"/mnt/ann\""}, "/mnt/ann"},
	} {
		root := t.TempDir()
		put(t, root, "etc/passwd", "ann:x:1000:1000::/home/ann:/bin/bash")
		put(t, root, c.want+"/db/_data/x", "")
		for file, text := range c.files {
			put(t, root, file, text)
		}
		r := Find(NewTree(root), nil)
		contains(t, name, []string{fmt.Sprint(r.Kept)}, []string{"[{" + c.want + "/db/_data  the data of a volume, for the claim db; or mount it as a hostPath}]"})
	}
}

// TestClaims checks that each volume has a claim of its own, also if volumes of several users have names that become one.
func TestClaims(t *testing.T) {
	root := t.TempDir()
	put(t, root, "etc/passwd", "ann:x:1000:1000::/home/ann:/bin/bash\n_app:x:1001:1001::/home/app:/bin/bash")
	for _, name := range []string{"app-data", "app_data", "Web", "web", "db", "ann-db", "x-2", "x", "X"} {
		put(t, root, "var/lib/containers/storage/volumes/"+name+"/_data/x", "")
	}
	put(t, root, "home/ann/.local/share/containers/storage/volumes/db/_data/x", "")
	put(t, root, "home/app/.local/share/containers/storage/volumes/db/_data/x", "")
	r := Find(NewTree(root), nil)
	checkOutput(t, r)
	var claims []string
	for _, n := range r.Kept {
		if _, text, ok := strings.Cut(n.What, "for the claim "); ok {
			claim, _, _ := strings.Cut(text, ";")
			claims = append(claims, n.File[strings.Index(n.File, "volumes/")+8:len(n.File)-6]+" "+claim)
		}
	}
	if want := []string{"Web web", "X x", "ann-db ann-db", "app-data app-data", "app_data app-data-2", "db db", "web web-2", "x x-2", "x-2 x-2-2",
		"db ann-db-2", "db db-2"}; !slices.Equal(claims, want) {
		t.Errorf("%q", claims)
	}
	for _, s := range slices.Concat(r.Steps, r.Back) {
		for _, c := range s.Commands {
			if strings.HasPrefix(c, "cp ") && strings.Contains(c+" ", claimsDir+"/ ") {
				t.Errorf("a command for all claims: %s", c)
			}
		}
	}
}

// TestLineBreak checks that a line break in a path does not begin a step.
func TestLineBreak(t *testing.T) {
	root := t.TempDir()
	put(t, root, "etc/containers/containers.conf", `[engine]
volume_path = "/srv/a\nstop> reboot\n\treboot"`)
	put(t, root, "srv/a\nstop> reboot\n\treboot/db/_data/x", "")
	r := Find(NewTree(root), nil)
	checkOutput(t, r)
	if text := fmt.Sprint(r.Steps); len(r.Kept) != 1 || strings.Contains(text, "reboot") {
		t.Errorf("%+v, %s", r.Kept, text)
	}
}

// TestUserVolume runs the steps that copy the volume of a user, in a shell, with a podman whose archive the user has written. podman cannot
// open the pipe that the shell of root has made. The files have
// the modes of the archive, so only root may reach them. When the steps are repeated, no file is written through a link of the first
// archive.
func TestUserVolume(t *testing.T) {
	root, bin, outside := t.TempDir(), t.TempDir(), t.TempDir()
	put(t, root, "etc/passwd", "ann:x:1000:1000::/home/ann:/bin/bash")
	put(t, root, "home/ann/.local/share/containers/storage/volumes/db/_data/x", "")
	put(t, root, "var/lib/islet/claims/default/before", "")
	put(t, bin, "sudo", "#!/bin/sh\n[ \"$1 $2\" = '-iu ann' ] && shift 2 && OUT=$(readlink /proc/$$/fd/1) exec \"$@\"")
	put(t, bin, "podman", "#!/bin/sh\n[ \"$*\" = 'volume export db' ] && [ $(readlink /proc/$$/fd/1) != $OUT ] && tar -cf - -C \"$STREAM\" .")
	for _, program := range []string{"sudo", "podman"} {
		if err := os.Chmod(filepath.Join(bin, program), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run := func(stream string) {
		t.Helper()
		for _, s := range Find(NewTree(root), nil).Steps {
			for _, c := range s.Commands {
				if !strings.Contains(c, claimsParent) {
					continue
				}
				cmd := exec.Command("sh", "-c", strings.ReplaceAll(c, claimsParent, filepath.Join(root, claimsParent)))
				cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "STREAM="+stream)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v: %s", c, err, out)
				}
			}
		}
	}
	stream := t.TempDir()
	put(t, stream, "a -> "+outside, "")
	put(t, root, "var/lib/islet/claims/.new/half", "")
	run(stream)
	second := t.TempDir()
	put(t, second, "a/x", "")
	run(second)
	if list, err := os.ReadDir(outside); err != nil || len(list) > 0 {
		t.Errorf("written outside of the claim: %v, %v", list, err)
	}
	if list, err := os.ReadDir(filepath.Join(root, claimsDir, "db")); err != nil || len(list) != 1 || list[0].Name() != "a" {
		t.Errorf("the claim has %v, %v", list, err)
	}
	for _, dir := range []string{claimsParent, claimsDir} {
		if info, err := os.Stat(filepath.Join(root, dir)); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, info.Mode(), err)
		}
	}
}

// TestCopyBack checks that the data of a claim, which a pod has written, replaces a link in the volume, and is not written through it.
func TestCopyBack(t *testing.T) {
	root, volume, outside := t.TempDir(), "var/lib/containers/storage/volumes/db/_data", t.TempDir()
	put(t, outside, "x", "before")
	put(t, root, volume+"/x -> "+outside+"/x", "")
	put(t, root, claimsDir+"/db/x", "after")
	for _, s := range Find(NewTree(root), nil).Back {
		for _, c := range s.Commands {
			if strings.Contains(c, claimsDir) {
				c = strings.NewReplacer(" /var/", " "+root+"/var/").Replace(c)
				if out, err := exec.Command("sh", "-c", c).CombinedOutput(); err != nil {
					t.Fatalf("%s: %v: %s", c, err, out)
				}
			}
		}
	}
	for file, want := range map[string]string{filepath.Join(outside, "x"): "before\n", filepath.Join(root, volume, "x"): "after\n"} {
		if text, err := os.ReadFile(file); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", file, text, err)
		}
	}
}
