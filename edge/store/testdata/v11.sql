-- A database as version 11 made it. The key that sealed it is 32 times "k".
PRAGMA page_size = 1024;
PRAGMA journal_mode = WAL;
-- What this node is to run, in the order it learned of it.
CREATE TABLE pods (
	uid       TEXT    PRIMARY KEY,
	seq       INTEGER NOT NULL,
	source    TEXT    NOT NULL,
	origin    TEXT    NOT NULL,
	manifest  BLOB    NOT NULL, -- v1.Pod, protobuf
	deleting  INTEGER NOT NULL, -- is to end, and goes once nothing of it is left
	grace     INTEGER NOT NULL, -- nanoseconds, of the deletion
	again     INTEGER NOT NULL  -- wanted anew under the same UID, once it has ended
) WITHOUT ROWID;

-- Addresses given to sandboxes.
CREATE TABLE leases (
	addr  BLOB PRIMARY KEY, -- 4 or 16 bytes
	owner TEXT NOT NULL
) WITHOUT ROWID;

-- Pods that may not run here, by UID: an answer that must not change by a restart.
CREATE TABLE admissions (
	uid     TEXT PRIMARY KEY,
	reason  TEXT NOT NULL,
	message TEXT NOT NULL
) WITHOUT ROWID;

-- Image archives whose content has been imported.
CREATE TABLE imports (
	digest TEXT PRIMARY KEY,
	name   TEXT NOT NULL
) WITHOUT ROWID;

-- The last known status of each pod, for when its containers are gone.
CREATE TABLE statuses (
	uid    TEXT PRIMARY KEY,
	status BLOB NOT NULL -- v1.PodStatus, protobuf
) WITHOUT ROWID;

CREATE TABLE meta (
	key   TEXT PRIMARY KEY,
	value TEXT NOT NULL
) WITHOUT ROWID;

-- What the API server said of the objects that pods of this node use.
CREATE TABLE objects (
	kind      TEXT    NOT NULL, -- ConfigMap, Secret, Service
	namespace TEXT    NOT NULL,
	name      TEXT    NOT NULL, -- '': all of the namespace
	version   TEXT    NOT NULL, -- resourceVersion to go on watching from
	gone      INTEGER NOT NULL, -- deleted since, and kept for the pods that have it
	data      BLOB    NOT NULL, -- the list of the kind, protobuf, sealed; an empty list: there is none
	PRIMARY KEY (kind, namespace, name)
) WITHOUT ROWID;

-- Service account tokens, under what the pod asked for.
CREATE TABLE tokens (
	uid      TEXT    NOT NULL, -- of the pod
	audience TEXT    NOT NULL, -- '': the server's default
	seconds  INTEGER NOT NULL, -- expirationSeconds
	issued   INTEGER NOT NULL, -- seconds since 1970, by the server's clock
	expires  INTEGER NOT NULL,
	token    BLOB    NOT NULL, -- sealed
	PRIMARY KEY (uid, audience, seconds)
) WITHOUT ROWID;

PRAGMA application_id = 1769172084;
PRAGMA user_version = 11;

-- Events of pods and of the node that the API server does not know, and warnings.
CREATE TABLE events (
	name  TEXT    PRIMARY KEY, -- of the Event
	seq   INTEGER NOT NULL,    -- order in which they happened last
	told  INTEGER NOT NULL,    -- the count that the API server knows; 0: nothing of it
	event BLOB    NOT NULL     -- v1.Event, protobuf
) WITHOUT ROWID;

-- Who pulled an image: pods with other credentials ask its registry first. Besides, of
-- each image '', the pulls that have begun: name is the reference, uid the image that it
-- meant before.
CREATE TABLE pulls (
	image     TEXT NOT NULL, -- its ID
	name      TEXT NOT NULL, -- repository, without tag and digest; '': it was pulled, nobody knows by whom
	namespace TEXT NOT NULL, -- of the Secret
	secret    TEXT NOT NULL, -- its name; '': every pod may use the image
	uid       TEXT NOT NULL, -- of the Secret
	hash      BLOB NOT NULL, -- of the credential, with the key that seals
	PRIMARY KEY (image, name, namespace, secret, uid)
) WITHOUT ROWID;

-- The CPU and memory that a pod was given after it was resized in place. A pod that was
-- never resized has no row: it has what its sandbox was made with.
CREATE TABLE allocations (
	uid        TEXT    PRIMARY KEY,
	generation INTEGER NOT NULL, -- of the pod that asked for it
	resources  BLOB    NOT NULL  -- v1.PodSpec with nothing but names and resources, protobuf
) WITHOUT ROWID;
-- What is mounted of volumes, or was about to be: a row is there before anything of it is
-- mounted and until nothing is.
CREATE TABLE volumes (
	volume TEXT NOT NULL, -- its ID, of whichever pod
	pod    TEXT NOT NULL, -- UID; '': for the whole node
	path   TEXT NOT NULL, -- where
	data   BLOB NOT NULL, -- what the driver needs to undo it
	PRIMARY KEY (volume, pod, path)
) WITHOUT ROWID;
-- The devices that containers have of the extended resources they ask for. There is no row
-- of a container that has none.
CREATE TABLE devices (
	uid       TEXT    NOT NULL, -- of the pod
	container TEXT    NOT NULL,
	resource  TEXT    NOT NULL,
	count     INTEGER NOT NULL, -- of devices
	given     BLOB    NOT NULL, -- the devices and what the container gets with them, JSON
	PRIMARY KEY (uid, container, resource)
) WITHOUT ROWID;

-- The ResourceClaims that drivers on this node prepared, or may have.
CREATE TABLE claims (
	uid       TEXT NOT NULL, -- of the claim
	driver    TEXT NOT NULL,
	namespace TEXT NOT NULL,
	name      TEXT NOT NULL,
	state     BLOB NOT NULL, -- the pods that use it and its devices, JSON
	PRIMARY KEY (uid, driver)
) WITHOUT ROWID;

-- ConfigMaps, Secrets and claims that manifests of this node hold.
CREATE TABLE local (
	source    TEXT    NOT NULL, -- file, http, local
	kind      TEXT    NOT NULL, -- ConfigMap, Secret, PersistentVolumeClaim
	namespace TEXT    NOT NULL,
	name      TEXT    NOT NULL,
	origin    TEXT    NOT NULL, -- the file or URL
	gone      INTEGER NOT NULL, -- removed since, and kept for the pods that have it
	data      BLOB    NOT NULL, -- the object, protobuf, sealed
	PRIMARY KEY (source, kind, namespace, name)
) WITHOUT ROWID;

-- Certificates of pods, with their keys, by the source of a projected volume that shows them.
CREATE TABLE certificates (
	uid    TEXT    NOT NULL, -- of the pod
	volume TEXT    NOT NULL,
	source INTEGER NOT NULL, -- which of the volume's sources
	state  BLOB    NOT NULL, -- what edge/podcertificate knows of it, sealed
	PRIMARY KEY (uid, volume, source)
) WITHOUT ROWID;

-- Pods that ended and came back under their UID, such as a manifest that was removed and
-- put back.
CREATE TABLE lives (
	uid   TEXT    PRIMARY KEY,
	lives INTEGER NOT NULL -- how often it ended
) WITHOUT ROWID;

-- Of the pods in admissions those that the node ended while they ran.
CREATE TABLE evictions (
	uid       TEXT    PRIMARY KEY,
	grace     INTEGER NOT NULL, -- nanoseconds that their containers get to end, at most; 0: as the spec says
	disrupted INTEGER NOT NULL  -- for the sake of others
) WITHOUT ROWID;

INSERT INTO pods (seq, uid, source, origin, manifest, deleting, grace, again) VALUES (1, 'uid-web', 'file', '/etc/islet/web.yaml', x'0ac6010a0377656212001a0764656661756c7422002a077569642d7765623200380042005a0d0a03617070120673656e736f725a0c0a047469657212046564676562240a196b756265726e657465732e696f2f636f6e6669672e6861736812077569642d776562623b0a196b756265726e657465732e696f2f636f6e6669672e7365656e121e323032362d31312d32315430323a31353a30302e3030303030303030305a62230a1b6b756265726e657465732e696f2f636f6e6669672e736f75726365120466696c6512980312bb010a026330122772656769737472792e6578616d706c652e636f6d2f7465616d2f73656e736f723a76312e322e3322082d2d6c697374656e22053a3830383022092d2d766572626f73652a003a230a08504f445f4e414d4512001a150a130a027631120d6d657461646174612e6e616d6542004a130a046461746110001a052f64617461220032006a142f6465762f7465726d696e6174696f6e2d6c6f67720c49664e6f7450726573656e74800100880100900100a2010446696c6512bb010a026331122772656769737472792e6578616d706c652e636f6d2f7465616d2f73656e736f723a76312e322e3322082d2d6c697374656e22053a3830383022092d2d766572626f73652a003a230a08504f445f4e414d4512001a150a130a027631120d6d657461646174612e6e616d6542004a130a046461746110001a052f64617461220032006a142f6465762f7465726d696e6174696f6e2d6c6f67720c49664e6f7450726573656e74800100880100900100a2010446696c651a00320042004a0052005800600068008201008a01009a0100c201001a130a001a0022002a0032004a005a007200880100', 0, 0, 0);
INSERT INTO pods (seq, uid, source, origin, manifest, deleting, grace, again) VALUES (2, 'uid-log', 'file', '/etc/islet/log.yaml', x'0ac6010a036c6f6712001a0764656661756c7422002a077569642d6c6f673200380042005a0d0a03617070120673656e736f725a0c0a047469657212046564676562240a196b756265726e657465732e696f2f636f6e6669672e6861736812077569642d6c6f67623b0a196b756265726e657465732e696f2f636f6e6669672e7365656e121e323032362d31312d32315430323a31353a30302e3030303030303030305a62230a1b6b756265726e657465732e696f2f636f6e6669672e736f75726365120466696c6512980312bb010a026330122772656769737472792e6578616d706c652e636f6d2f7465616d2f73656e736f723a76312e322e3322082d2d6c697374656e22053a3830383022092d2d766572626f73652a003a230a08504f445f4e414d4512001a150a130a027631120d6d657461646174612e6e616d6542004a130a046461746110001a052f64617461220032006a142f6465762f7465726d696e6174696f6e2d6c6f67720c49664e6f7450726573656e74800100880100900100a2010446696c6512bb010a026331122772656769737472792e6578616d706c652e636f6d2f7465616d2f73656e736f723a76312e322e3322082d2d6c697374656e22053a3830383022092d2d766572626f73652a003a230a08504f445f4e414d4512001a150a130a027631120d6d657461646174612e6e616d6542004a130a046461746110001a052f64617461220032006a142f6465762f7465726d696e6174696f6e2d6c6f67720c49664e6f7450726573656e74800100880100900100a2010446696c651a00320042004a0052005800600068008201008a01009a0100c201001a130a001a0022002a0032004a005a007200880100', 1, 30000000000, 0);
INSERT INTO leases (addr, owner) VALUES (x'0a2a0002', 'sandbox'), (x'fd000000000000000000000000000002', 'sandbox');
INSERT INTO admissions (uid, reason, message) VALUES ('uid-web', 'OutOfcpu', 'Node has no room');
INSERT INTO imports (digest, name) VALUES ('sha256:00', 'demo.tar');
INSERT INTO meta (key, value) VALUES ('key', 'value');
INSERT INTO objects (kind, namespace, name, version, gone, data) VALUES ('Secret', 'default', 'wifi', '7', 1, x'ddcf0fc3b539ca7d1aedfd4d037d82cb845cfff6052498b513c3514d12126484');
INSERT INTO tokens (uid, audience, seconds, issued, expires, token) VALUES ('uid-web', '', 3607, 1000, 4607, x'e230700fb777f81a3e9046f2211730f84ee80f6235c2dde90d82ad419c69b8d522275e18');
INSERT INTO events (name, seq, told, event) VALUES ('e', 3, 1, x'0a030a0165');
INSERT INTO pulls (image, name, namespace, secret, uid, hash) VALUES ('sha256:01', 'registry.example/app', 'default', 'pull', 'uid-pull', x'686173683a3332'), ('', 'registry.example/app:2', '', '', 'sha256:01', x'');
INSERT INTO allocations (uid, generation, resources) VALUES ('uid-web', 2, x'12030a0163');
INSERT INTO volumes (volume, pod, path, data) VALUES ('kubernetes.io/csi/d^v', 'uid-web', '/var/lib/kubelet/pods/uid-web/volumes/v', x'7b7d');
INSERT INTO devices (uid, container, resource, count, given) VALUES ('uid-web', 'c0', 'example.com/serial', 1, x'7b7d');
INSERT INTO claims (uid, driver, namespace, name, state) VALUES ('uid-claim', 'gpu.example.com', 'default', 'gpu', x'7b7d');
INSERT INTO local (source, kind, namespace, name, origin, gone, data) VALUES ('file', 'Secret', 'default', 'wifi', '/etc/islet/wifi.yaml', 1, x'6d54cf3541e8abe957268c4f2b8b48e34fb3f2ebfd1e6b53b3a9d31df05da293');
INSERT INTO certificates (uid, volume, source, state) VALUES ('uid-web', 'creds', 1, x'52ad0b4270563526157b7bac63fcfcb9b26e9ddef6aa2335c153e3247fb3');
INSERT INTO lives (uid, lives) VALUES ('uid-web', 3);
INSERT INTO evictions (uid, grace, disrupted) VALUES ('uid-web', 1000000000, 1);
