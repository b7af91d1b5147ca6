// Package twin tells whether another machine has the name of this node: a cloned SD card, a
// second machine with the same host name, or the board that this one replaces.
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
// hardware of its original: the clone learns from its own store, before any request, that it is
// in another machine. Serial numbers decide where both have some, else network addresses; a
// machine that has neither is never told apart in this way.
//
// The Lease has the annotation islet.dev/claim: "HARDWARE.BOOT.TERM.SINCE". Renewals write the
// renewTime only, and each answer brings the annotations, so that a foreign claim is seen with
// the next renewal and costs no request. It is the second way to find a twin: this boot has
// written its claim, and later the Lease has the claim of another boot. No reboot explains that.
//
// # Who stays
//
//	hardware    no record    the Lease has            this machine
//	as before   .            another boot's claim     claims
//	another     .            .                        backs off
//	.           yes          no foreign claim         claims
//	.           yes          a foreign claim          claims once the Lease stands still, else backs off
//	claimed     .            a later claim            writes its own again: it stays
//	claimed     .            an earlier one, twice    backs off
//	.           .            one of a higher term     backs off
//
// A claim with a higher term comes first, then the one that found the lower version of the Lease.
// No clock is compared: times are measured by each machine for itself, and whether a Lease moves
// is a question of whether its renewTime is another, not of which. Twice, since a restored
// backup shows the claim of an earlier boot once.
//
// # Backing off
//
// The link of a machine that backs off is Down with the reason DuplicateNode, so nothing that it
// does reaches the API server but two small requests at growing intervals: it reads the Lease
// and leaves the annotation islet.dev/twin there. The machine that stays finds the annotation in
// its next renewal, removes it, and reports by an event and the condition DuplicateNode. The
// record keeps the decision over reboots. A pod of the API server that writes to a volume outside
// of this machine is not started; what runs goes on, and so do static pods.
//
// TakeOver raises the term: it is for a board that was replaced, a network card that was
// exchanged where there is no serial number, and a twin whose other half is gone.
//
// # What others can force
//
// A pod has no right to change Leases, and its files are not read. A hostile API server can show
// a claim that makes this machine back off: then no pod starts here that shares volumes, which
// the server could have had by not binding it. Containers that run go on, are restarted when they
// fail, and static pods start. Claims and notices are bounded and are never shown unchecked.
package twin
