// Package twin detects another machine that uses the name of this node: a clone of the SD card,
// a second machine with the same host name, or the board that this one replaces.
//
//	marks of the hardware, boot ID --hashed--> Twin <--record--> store
//	link   --Admit, after each good probe-->     |  \--Held--> status, doctor
//	lease  --Annotations, Renewed-->             |---Prepare--> pods with shared volumes wait
//	islet takeover --TakeOver-->                 '---Conditions, Changed--> Node, event, link
//
// # What is compared
//
// The record in the store names the hardware that last had the name, by hashes of its serial
// numbers and permanent network addresses. The record is on the card, so a clone carries the
// record of its original: it finds in its own store, before any request, that it runs on other
// hardware. Serial numbers are compared if both sides have some, else network addresses. A
// machine that has neither cannot be told apart in this way.
//
// The Lease has the annotation islet.dev/claim: "HARDWARE.BOOT.TERM.SINCE". A renewal writes only
// the renewTime, and its answer has the annotations, so a foreign claim is seen at the next
// renewal and costs no request. This is the second way to detect a twin: this boot has written
// its claim, and later the Lease has the claim of another boot. A reboot cannot cause that.
//
// # Which machine stays
//
//	hardware    no record    the Lease has            this machine
//	as before   .            another boot's claim     claims
//	another     .            .                        backs off
//	.           yes          no foreign claim         claims
//	.           yes          a foreign claim          claims if the Lease is not renewed, else backs off
//	claimed     .            a later claim            writes its own again: it stays
//	claimed     .            an earlier one, twice    backs off
//	.           .            one of a higher term     backs off
//
// The claim with the higher term wins, then the claim with the lower version of the Lease. No
// clocks are compared: each machine measures durations by itself, and a Lease counts as renewed
// when its renewTime is different, not when it is later. An earlier claim must appear twice,
// because a restored backup shows the claim of an earlier boot once.
//
// # Backing off
//
// The link of a machine that backs off is Down with the reason DuplicateNode. The machine then
// sends only two small requests, at growing intervals: it reads the Lease and sets its annotation
// islet.dev/twin. The machine that stays finds the annotation at its next renewal, removes it, and
// reports an event and the condition DuplicateNode. The record keeps the decision over reboots. A
// machine that backed off does not start pods of the API server that write to a volume outside of
// the machine. Running containers and static pods are not affected.
//
// TakeOver raises the term. Use it for a board that replaces another, for an exchanged network
// card where there is no serial number, and when the other machine is gone.
//
// # Attacks
//
// A pod cannot change Leases, and the files of pods are not read. A hostile API server can show a
// claim that makes this machine back off. Then pods with shared volumes do not start here, which
// the server can also cause by not binding them. Running containers go on and are restarted when
// they fail, and static pods start. Claims and notices have a maximum length and are validated
// before they are shown.
package twin
