//! State that is created when it is needed, and can be freed in between.

/// A boxed value that can be freed while nothing depends on it.
pub(super) struct Spare<T> {
    value: Option<Box<T>>,
    create: fn() -> T,
}

impl<T> Spare<T> {
    /// Creates a spare without a value. `create` makes the value when it is needed.
    pub(super) fn new(create: fn() -> T) -> Spare<T> {
        Spare {
            value: None,
            create,
        }
    }

    /// Returns the value, unless it is freed.
    pub(super) fn get(&self) -> Option<&T> {
        self.value.as_deref()
    }

    /// Returns the value, and creates it if it is freed.
    pub(super) fn get_mut(&mut self) -> &mut T {
        let create = self.create;
        self.value.get_or_insert_with(|| Box::new(create()))
    }

    /// Returns the value itself.
    pub(super) fn take(mut self) -> T {
        match self.value.take() {
            Some(value) => *value,
            None => (self.create)(),
        }
    }

    /// Frees the value. Returns whether there was one.
    pub(super) fn free(&mut self) -> bool {
        self.value.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_value_is_created_again() {
        let mut spare = Spare::new(Vec::<u8>::new);
        assert_eq!(spare.get(), None);
        spare.get_mut().push(1);
        assert_eq!(spare.get().map(Vec::len), Some(1));
        assert!(spare.free());
        assert!(!spare.free());
        assert_eq!(spare.get(), None);
        spare.get_mut().push(2);
        assert_eq!(spare.take(), [2]);
    }
}
