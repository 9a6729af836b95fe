"""`tilewright watch`: a page that follows a store, served to browsers of this machine."""
