// hipRTC declares __half and its functions itself; programs include this header nevertheless.
#pragma once
