
# Behind the suite's client (tests/support/redis.tcl): a client that says FENCE where a write is answered by NOFENCE, and
# repeats the command. It holds token 1 for everything. What FLUSHALL took, the record of the namespace, it has made again.
rename ::redis::__dispatch__raw__ ::redis::__dispatch__unfenced__
array set ::redis::queued {}

proc ::redis::fence {id error} {
    if {[regexp {^NOFENCE resource=(.*): this connection holds no claim to it; say FENCE} $error -> resource]} {
        set answer [catch {::redis::__dispatch__unfenced__ $id FENCE [list $resource 1 suite]} error]
        if {!$answer} {return 1}
    }
    if {![string match {*fence init*} $error]} {return 0}
    foreach words [split $::env(FENCE_INIT) ";"] {exec {*}$words}
    if {[info exists resource]} {return [::redis::fence $id "NOFENCE resource=$resource: this connection holds no claim to it; say FENCE"]}
    return 1
}

proc ::redis::__dispatch__raw__ {id method argv} {
    set is_plain [expr {[info exists ::redis::blocking($id)] && $::redis::blocking($id) && !$::redis::deferred($id) &&
                        !$::redis::readraw($id) && [info command ::redis::__method__$method] eq {}}]
    if {!$is_plain} {return [::redis::__dispatch__unfenced__ $id $method $argv]}
    for {set i 0} {$i < 50} {incr i} {
        set code [catch {::redis::__dispatch__unfenced__ $id $method $argv} reply]
        set is_queueing [info exists ::redis::queued($id)]
        if {!$code && $is_queueing && $reply eq {QUEUED}} {lappend ::redis::queued($id) [list $method $argv]}
        if {!$code && [string equal -nocase $method multi]} {set ::redis::queued($id) {}}
        if {[lsearch {exec discard reset} [string tolower $method]] >= 0} {unset -nocomplain ::redis::queued($id)}
        if {!$code || !([string match NOFENCE* $reply] || [string match {*fence init*} $reply])} break
        if {$is_queueing} {::redis::__dispatch__unfenced__ $id DISCARD {}}
        if {![::redis::fence $id $reply]} break
        if {$is_queueing} {
            # All over again: the refusal has spoilt the transaction.
            ::redis::__dispatch__unfenced__ $id MULTI {}
            foreach queued $::redis::queued($id) {::redis::__dispatch__unfenced__ $id {*}$queued}
        }
    }
    return -code $code $reply
}
