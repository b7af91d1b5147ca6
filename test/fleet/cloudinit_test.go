package fleet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
	"github.com/islet-edge/islet/test/system"
)

// mirror serves the files of /srv at https://localhost:8443. Its certificate is one that the system trusts.
const mirror = `set -e
cat >/root/mirror.py <<'END'
import functools, http.server, ssl
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory="/srv")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8443), handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/root/mirror.crt", "/root/mirror.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
END
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
	-keyout /root/mirror.key -out /root/mirror.crt 2>/dev/null
cp /root/mirror.crt /usr/local/share/ca-certificates/
update-ca-certificates >/dev/null 2>&1
printf '[Service]\nExecStart=/usr/bin/python3 /root/mirror.py\n[Install]\nWantedBy=multi-user.target\n' >/etc/systemd/system/mirror.service
systemctl enable mirror 2>/dev/null
`

// firstBoot is the command of the script in the user-data.
const firstBoot = "/usr/local/sbin/islet-first-boot "

// userData returns one of the files of packaging/cloud-init with other values.
func userData(t *testing.T, name string, replace ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(machine.Root(t), "packaging/cloud-init", name))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(text, replace[i]) {
			t.Fatalf("%s has no %q", name, replace[i])
		}
		text = strings.ReplaceAll(text, replace[i], replace[i+1])
	}
	return text
}

// first boots the system for the first time with cloud-init. It returns when cloud-init has ended, with the exit code of its status.
func first(t *testing.T, s *system.System, data string) int {
	t.Helper()
	s.Run("mkdir -p /var/lib/cloud/seed/nocloud && echo 'instance-id: i-1' >/var/lib/cloud/seed/nocloud/meta-data && rm /etc/cloud/cloud-init.disabled && sync")
	if err := os.WriteFile(filepath.Join(s.Dir, "var/lib/cloud/seed/nocloud/user-data"), []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	s.PowerOff()
	s.Boot()
	out, code := s.Try("cloud-init status --wait --long")
	t.Log(out)
	return code
}

// TestCloudInitSchema checks the user-data with the schema of cloud-init.
func TestCloudInitSchema(t *testing.T) {
	s := boot(t, cloudInit, system.Systemd, nil)
	for _, name := range []string{"join.yaml", "standalone.yaml"} {
		says(t, s, 0, "cloud-init schema --config-file /payload/packaging/cloud-init/"+name, "Valid cloud-config")
	}
	s.Run("sed 's/permissions:/permisions:/' /payload/packaging/cloud-init/join.yaml >/root/wrong.yaml")
	if out, code := s.Try("cloud-init schema --config-file /root/wrong.yaml"); code == 0 {
		t.Errorf("a misspelled field is valid: %s", out)
	}
}

// TestCloudInitStandalone boots a system with the user-data of a node without a cluster. The node must install islet from a mirror and run
// the bundle of its source.
func TestCloudInitStandalone(t *testing.T) {
	s := boot(t, cloudInit, system.Systemd, nil)
	s.Run(mirror + `cp /payload/` + archive + ` /srv/ && cd /root && tar xzf /payload/` + archive + ` --strip-components=1
		mkdir -p kiosk/manifests kiosk/images && cp demo/islet-demo.tar kiosk/images/ && cp demo/web.yaml kiosk/manifests/
		printf 'apiVersion: islet.dev/v1alpha1\nkind: Bundle\nname: kiosk\nnumber: 1\n' >kiosk/bundle.yaml
		./islet bundle keys new bundle.key >bundle.pub && ./islet bundle build kiosk -o /srv/kiosk.tar && ./islet bundle sign /srv/kiosk.tar --key bundle.key`)
	key := strings.TrimSpace(s.Run("cat /root/bundle.pub"))
	sum := strings.Fields(s.Run("sha256sum /srv/" + archive))[0]
	data := userData(t, "standalone.yaml", "PUBLIC-KEY-OF-BUNDLES", key, "PUBLIC-KEY-OF-RELEASES", key,
		"https://mirror.example.com/islet/islet-"+shown+"-linux-arm64.tar.gz SHA256", "https://localhost:8443/"+archive+" "+sum,
		"bundles.example.com", "localhost:8443", "every: 1h", "every: 1m")
	// The first boot has no link to the mirror, and ends by a power cut. cloud-init does not run the script again.
	s.Run("systemctl disable mirror")
	if code := first(t, s, data); code != 0 {
		t.Error(s.Run("cat /var/log/cloud-init-output.log"))
	}
	s.Run("systemctl is-enabled islet-first-boot && ! test -e /usr/local/bin/islet && systemctl enable mirror && sync")
	s.PowerOff()
	s.Boot()
	waitForPods(s, "web")
	s.Await("! systemctl is-enabled islet-first-boot && ! systemctl is-active islet-first-boot")
	s.Run("systemctl is-enabled islet && ! test -e /run/islet-reboot && ! ls -d /var/tmp/islet* && ! test -e /var/lib/islet-first-boot")
	s.Run("/usr/local/bin/islet check /etc/islet/edge.yaml")
	// The script may run again.
	s.Run(firstBoot + "https://localhost:8443/" + archive + " " + sum)
	waitForPods(s, "web")
	// An archive without a checksum, with another one, and by http.
	says(t, s, 3, firstBoot+"https://localhost:8443/"+archive, "the SHA-256 of https://localhost:8443/"+archive+" is missing")
	says(t, s, 3, firstBoot+"https://localhost:8443/"+archive+" "+strings.Repeat("0", 64), "does not have the SHA-256")
	says(t, s, 3, firstBoot+"http://localhost:8443/"+archive+" "+sum, "only https")
}

// TestCloudInitJoin boots a system with the user-data of a node of a cluster, and installs the archive on the boot partition. The kernel of
// the board seems to have no memory cgroup.
func TestCloudInitJoin(t *testing.T) {
	s := boot(t, cloudInit, system.Systemd, nil)
	s.Run("mkdir -p /boot/firmware && cp /payload/" + archive + " /boot/firmware/ && echo console=tty1 >/boot/firmware/cmdline.txt")
	data := userData(t, "join.yaml", "CONTROL-PLANE:6443", "127.0.0.1:1", ", certificate-authority-data: CA-IN-BASE64", "",
		"TOKEN-ID.TOKEN-SECRET", "abcdef.0123456789abcdef",
		"https://mirror.example.com/islet/islet-"+shown+"-linux-arm64.tar.gz SHA256", archive)
	if code := first(t, s, data); code != 0 {
		t.Error(s.Run("cat /var/log/cloud-init-output.log"))
	}
	s.Await("! systemctl is-enabled islet-first-boot")
	s.Run(`[ "$(stat -c %a%U /etc/islet/bootstrap.kubeconfig)" = 600root ] && /usr/local/bin/islet check /etc/islet/kubelet.yaml`)
	s.Await("/usr/local/bin/islet status | grep -q 'no link to the API server'")
	s.Run(`tr '\0' ' ' </proc/$(pgrep -o -x islet)/cmdline |
		grep -q -- ' --bootstrap-kubeconfig=/etc/islet/bootstrap.kubeconfig --kubeconfig=/etc/islet/kubeconfig'`)
	s.Run("! test -e /run/islet-reboot")

	// On a board without the memory cgroup, the script asks for a reboot.
	s.Run("mkdir -p /root/proc && printf 'memory 1 1 0\\n' >/root/proc/cgroups")
	s.Run("ISLET_CGROUP=/nowhere ISLET_PROC=/root/proc " + firstBoot + archive)
	s.Run("test -e /run/islet-reboot && grep -q '^console=tty1 cgroup_enable=memory cgroup_memory=1$' /boot/firmware/cmdline.txt")

	// With --no-start, as in a script of Raspberry Pi Imager, the service starts at the next boot.
	s.Run("cd /root && tar xzf /payload/" + archive + " --strip-components=1 && ./install.sh uninstall --purge")
	s.Run(firstBoot + "--no-start " + archive + " && systemctl is-enabled islet && ! systemctl is-active islet")
	s.PowerOff()
	s.Boot()
	s.Run("systemctl is-active islet")
}
