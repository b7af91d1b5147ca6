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
