//! An allocation from its announcement to its charge: reserve, let the driver work, commit or cancel.

use gpupool_nvidia::cuda::{CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUresult};

use super::contexts::current_owner;
use super::memory_pools;
use crate::lease::{self, Access};
use crate::state::PROCESS;
use crate::state::account::{Account, Charge, rounded};
use crate::state::pointers::Allocation;
use crate::stop;

/// An address on the card.
pub(crate) type Address = u64;

/// Announces an allocation; nothing where it need not be charged, a code where it cannot be made.
#[inline(never)]
pub(crate) fn begin(bytes: u64) -> Result<Option<Charge>, CUresult> {
    let account = match lease::ensure() {
        Access::Uncharged => return Ok(None),
        Access::Denied(code) => return Err(code),
        Access::Leased(account) => account,
    };
    lease::look_after_connection();
    let reservation = memory_pools::reserve(&account, rounded(bytes)).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    Ok(Some(Charge { account, reservation }))
}

/// Charges what the driver has taken (`bytes` at `address`), if it succeeded (`code`).
#[inline(never)]
pub(crate) fn finish(
    charge: Option<Charge>,
    code: CUresult,
    address: Address,
    bytes: u64,
    undo: fn(Address),
) -> CUresult {
    let Some(charge) = charge else { return code };
    stop::at(b"called");
    if code != CUDA_SUCCESS {
        return failed(charge, code);
    }
    let Charge { account, reservation } = charge;
    let taken = rounded(bytes);
    let announced = reservation.bytes();
    if taken > announced {
        // The driver took more than could be told before. What is over must fit too, or all of it goes back.
        let Some(rest) = memory_pools::reserve(&account, taken - announced) else {
            undo(address);
            reservation.cancel();
            return CUDA_ERROR_OUT_OF_MEMORY;
        };
        rest.commit(taken - announced);
        reservation.commit(announced);
    } else {
        reservation.commit(taken);
    }
    stop::at(b"committed");
    remember(&account, address, Allocation { bytes: taken, owner: current_owner(&account) }, undo)
}

/// The driver took nothing and answered `code`.
pub(crate) fn failed(charge: Charge, code: CUresult) -> CUresult {
    charge.reservation.cancel();
    // Without a context nothing was to be had, and a lease that was taken for it is of no use.
    if charge.account.slot().contexts() == 0 {
        lease::release_if_idle();
    }
    code
}

/// Remembers a piece, so that its end is noticed.
fn remember(account: &Account, address: Address, piece: Allocation, undo: fn(Address)) -> CUresult {
    let Ok(before) = PROCESS.pointers.insert(address, piece) else {
        undo(address);
        account.release(piece.bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    };
    if let Some(before) = before {
        // What lay here died with its context, unnoticed.
        account.release(before.bytes);
    }
    CUDA_SUCCESS
}
