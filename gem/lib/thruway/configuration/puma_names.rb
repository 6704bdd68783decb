# frozen_string_literal: true

module Thruway
  # The part of the module `Puma` that configuration files use. It is named `Puma` only in such
  # files, so that no library takes the server for Puma.
  module PumaNames
    # The version of Puma that this server is compatible with.
    module Const
      PUMA_VERSION = VERSION = "8.0.2"
      CODE_NAME = "Into the Arena"
      PUMA_SERVER_STRING = "puma #{VERSION} #{CODE_NAME}"
    end

    IS_JRUBY = IS_WINDOWS = IS_OSX = false
    IS_MRI = IS_LINUX = HAS_FORK = HAS_UNIX_SOCKET = HAS_SSL = HAS_NATIVE_IO_WAIT = true

    module_function

    def jruby? = IS_JRUBY
    def windows? = IS_WINDOWS
    def osx? = IS_OSX
    def mri? = IS_MRI
    def linux? = IS_LINUX
    def forkable? = HAS_FORK
    def ssl? = HAS_SSL
    def abstract_unix_socket? = true

    def set_thread_name(name)
      Thread.current.name = "puma #{name}"
    end

    # Other constants come from Puma itself, if that is loaded too.
    def self.const_missing(name)
      is_other = Object.const_defined?(:Puma) && !::Puma.equal?(self)
      is_other ? ::Puma.const_get(name) : super
    end
  end
end
